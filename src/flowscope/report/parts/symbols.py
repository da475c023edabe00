"""Symbols of the page with their meaning, which a reader sees when pointing at the symbol."""

import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from flowscope.report.escaping import html_text

__all__ = ["SYMBOLS", "explained"]

SYMBOLS: Mapping[str, str] = MappingProxyType(
    {
        "S̄": "relative variation of a stretch of layers: Σ‖Δz‖² / Σ‖z‖² of the logits z",
        "S̄_L": "relative variation of a stretch of layers: Σ‖Δz‖² / Σ‖z‖² of the logits z",
        "κ": "curvature: 1 − (distance of two attention rows) / (distance of their points)",
        "Ξ": "drift budget: a bound on the error of a flow, made from the sizes of its steps",
        "TV": "total variation: half the sum of the absolute differences of two distributions",
        "KS": "Kolmogorov–Smirnov: largest difference of two cumulative distributions",
        "W₁": "Wasserstein distance: least mean distance over which mass has to be moved",
        "R_norm": "share of the motion that rotates: 0 for a gradient field, 1 for a pure rotation",
        "R_qk": "‖antisymmetric part‖ / ‖symmetric part‖ of the query–key matrix of a head",
        "EVI": "evolution variational inequality, which a descent satisfies at each step",
        "HJB": "Hamilton–Jacobi–Bellman equation, which a Schrödinger bridge satisfies",
        "ECE": "expected calibration error: mean gap between confidence and accuracy",
        "BCa": "bootstrap interval, corrected for bias and for acceleration",
        "ODE": "ordinary differential equation: a path without noise",
        "SDE": "stochastic differential equation: a path with noise",
        "log snr": "logarithm of the ratio of signal to noise",
    }
)
"""Symbols that mean the same on every page; a page adds its own with ``Page.symbols``."""

_PARTS = re.compile(r"(<script.*?</script>|<svg.*?</svg>|<[^>]*>)", re.DOTALL)
_SILENT = frozenset(  # elements whose text gets no hint: links, controls, headings, keys, labels
    (
        *("a", "abbr", "button", "code", "h1", "h2", "h3", "h4"),
        *("label", "li", "option", "select", "span", "summary"),
    )
)
_TAG = re.compile(r"<(/?)([a-z0-9]+)")


def explained(content: str, symbols: Mapping[str, str]) -> str:
    """HTML in which the first occurrence of each symbol carries its meaning.

    Parameters
    ----------
    content
        HTML of one section.
    symbols
        Symbols of the page beside ``SYMBOLS``; the same symbol replaces the entry there.

    Examples
    --------
    >>> explained("<h2>TV</h2><p>TV and g</p>", {"TV": "total variation"})
    '<h2>TV</h2><p><abbr title="total variation">TV</abbr> and g</p>'
    """
    meanings = {**SYMBOLS, **symbols}
    pattern, seen, depth = _pattern(tuple(sorted(meanings))), set[str](), 0

    def hinted(match: re.Match[str]) -> str:
        symbol = match[0]
        if symbol in seen:
            return symbol
        seen.add(symbol)
        return f'<abbr title="{html_text(meanings[symbol])}">{symbol}</abbr>'

    parts = _PARTS.split(content)
    for k, part in enumerate(parts):
        tag = _TAG.match(part)
        if k % 2:
            if tag and tag[2] in _SILENT:
                depth += -1 if tag[1] else 1
        elif depth == 0:
            parts[k] = pattern.sub(hinted, part)
    return "".join(parts)


@cache
def _pattern(symbols: tuple[str, ...]) -> re.Pattern[str]:
    longest = sorted(symbols, key=len, reverse=True)
    return re.compile(rf"(?<![\w^&#])(?:{'|'.join(map(re.escape, longest))})(?![\w\u0300-\u036f])")
