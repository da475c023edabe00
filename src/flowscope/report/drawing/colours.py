"""Colours of the page in its light and its dark theme, and the contrast between two colours.

A figure names its colours as ``theme`` writes them, ``#rrggbb`` on a white ground. The page
replaces each by a CSS variable ``--c-rrggbb``, which has another value on a dark ground; a colour
without such a variable stays as it is. The sequential scale is the same in both themes.
"""

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["DARK", "GROUNDS", "NAMES", "contrast", "css_colour", "theme_css", "word_on"]

DARK: Mapping[str, str] = MappingProxyType(
    {
        "#ffffff": "#10171e",  # ground
        "#f5f7f8": "#1a232c",  # wash
        "#eef0f1": "#27313b",  # a cell without a number
        "#17222d": "#e6ebf0",  # ink
        "#37434e": "#c6d0d9",  # ink of keys and small labels
        "#5a6773": "#a5b1bd",  # muted ink
        "#dde3e8": "#313d49",  # grid, rules
        "#aab4bd": "#64727f",  # axes
        "#c6cdd3": "#55626e",
        "#9aa4ad": "#76838f",
        "#7b8791": "#8f9ca8",
        "#e8f2f9": "#15293a",  # a stretch that passes
        "#c4dcec": "#2b4d68",
        "#e4e6e8": "#2b3138",  # a stretch that abstains
        "#c6cbcf": "#4a545d",
        "#0072b2": "#56b0ea",
        "#d55e00": "#ff8d45",
        "#00795a": "#35c193",
        "#b87400": "#dfa239",
        "#b34700": "#ff9a5c",
        "#cb7400": "#e8930f",  # the ordered series, from here to the last entry
        "#e2622b": "#ee7544",
        "#c93c52": "#f06d82",
        "#9c2c72": "#e27fbd",
        "#6f2a8c": "#c794e6",
        "#43208a": "#bdacf8",
        "#17112e": "#eee9ff",
    }
)
"""Each colour of the light theme with its counterpart on the dark ground."""

NAMES: Mapping[str, str] = MappingProxyType(
    {
        "ground": "#ffffff",
        "wash": "#f5f7f8",
        "void": "#eef0f1",
        "ink": "#17222d",
        "soft": "#37434e",
        "muted": "#5a6773",
        "rule": "#dde3e8",
        "line": "#aab4bd",
        "faint": "#c6cdd3",
        "thin": "#9aa4ad",
        "grey": "#7b8791",
        "passing": "#e8f2f9",
        "passing-edge": "#c4dcec",
        "abstained": "#e4e6e8",
        "abstained-edge": "#c6cbcf",
        "blue": "#0072b2",
        "vermilion": "#d55e00",
        "green": "#00795a",
        "orange": "#b87400",
        "fails": "#b34700",
        "uninformative": "#6f2a8c",
    }
)
"""Variables of ``page.css`` and the colour that each has in the light theme."""

GROUNDS: tuple[str, str] = ("#ffffff", DARK["#ffffff"])
"""Ground of the page in the light and in the dark theme."""


def contrast(first: str, second: str) -> float:
    """Contrast of two colours ``#rrggbb`` by the rule of WCAG 2, from 1 to 21.

    Examples
    --------
    >>> round(contrast("#000000", "#ffffff"), 1)
    21.0
    """
    low, high = sorted((_luminance(first), _luminance(second)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def word_on(colour: str) -> str:
    """Black or white, whichever has the higher contrast to a ground of this colour.

    Examples
    --------
    >>> word_on("#fbfaf0"), word_on("#141f59")
    ('#000000', '#ffffff')
    """
    return max(("#000000", "#ffffff"), key=lambda ink: contrast(ink, colour))


def css_colour(colour: str) -> str:
    """Colour ``#rrggbb`` as CSS that follows the theme of the page.

    Examples
    --------
    >>> css_colour("#0072b2")
    'var(--c-0072b2, #0072b2)'
    """
    return f"var(--c-{colour[1:].lower()}, {colour})"


def theme_css() -> str:
    """Style sheet with the colours of both themes; a printer gets the light one."""
    light = "".join(f"--c-{colour[1:]}:{colour};" for colour in DARK)
    dark = "".join(f"--c-{colour[1:]}:{other};" for colour, other in DARK.items())
    names = "".join(f"--{name}:var(--c-{colour[1:]});" for name, colour in NAMES.items())
    return (
        f":root{{color-scheme:light;{light}{names}}}\n"
        f'@media screen{{:root[data-theme="dark"]{{color-scheme:dark;{dark}}}}}\n'
        "@media screen and (prefers-color-scheme:dark){"
        f':root:not([data-theme="light"]){{color-scheme:dark;{dark}}}}}\n'
    )
