"""The sections on attention: entropy of heads, curvature, the output path."""

from collections.abc import Callable
from functools import partial

from flowscope.instruments.audit.contraction import CONTRACTION, figures
from flowscope.instruments.audit.contraction.head_figures import heads, heads_difference
from flowscope.instruments.audit.spans import SHADES
from flowscope.report.drawing.panels import panel_row
from flowscope.report.escaping import html_text
from flowscope.report.figure_html import figure, key, part, plot, shown
from flowscope.report.listings import numbers
from flowscope.report.numerals import count, percent
from flowscope.report.source import Source, column, words
from flowscope.report.spec import Figure
from flowscope.report.theme import Picture

__all__ = ["FIGURES", "curvature_section", "evolution_section", "heads_section"]


_Map = tuple[str, str, Callable[[Source], Picture]]
"""Title of a map, name of its box, and what draws it."""


def _maps(source: Source, *maps: _Map) -> str:
    """Maps side by side, each under its title."""
    boxes = "".join(
        f"<div><h3>{title}</h3>{_map(source, name, title, draw)}</div>"
        for title, name, draw in maps
    )
    return f'<div class="panels">{boxes}</div>'


@part()
def _map(source: Source, name: str, title: str, draw: Callable[[Source], Picture]) -> str:
    """One map by layer and head, or why it is not there."""
    return plot(name, draw(source), f"by layer and head: {title}")


def _heads_caption(source: Source) -> str:
    collapsed = words(source.tables["heads"], "collapsed").count("True")
    return (
        "Attention entropy as a share of the largest possible (the logarithm of the number of "
        "visible keys), mean over rows; dark is spread out, pale is focused. Right: this model "
        "less random weights; blue is more spread out than random weights, orange more focused, "
        "white is 0. "
        f"{count(collapsed, 'head')} marked as collapsed; {source.basis('heads')}."
    )


def heads_section(source: Source) -> str:
    """Attention entropy of every head, beside that of random weights, and their difference."""
    heads(source, "entropy_share")  # raises where there is no map at all
    maps = _maps(
        source,
        ("This model", "heads", lambda s: heads(s, "entropy_share")),
        ("Random weights", "heads-null", lambda s: heads(s, "random_weights")),
        ("Difference", "heads-difference", heads_difference),
    )
    return (
        f"<figure>{key(FIGURES['heads'].entries(source))}{maps}"
        f"<figcaption>{html_text(_heads_caption(source))}</figcaption></figure>"
        f"{numbers(source, 'heads')}"
    )


def curvature_section(source: Source) -> str:
    """Curvature of every head, and its response to temperature and key norms."""
    return _curvature_maps(source) + _responses(source)


def _curvature_caption(source: Source) -> str:
    frame = source.tables["curvature"]
    silent = words(frame, "status").count("abstained")
    mass = sorted(v for v in column(frame, "kept_mass") if v == v)
    kept = f"; {percent(mass[len(mass) // 2])} of the mass of a row lies there" if mass else ""
    return (
        "κ = 1 − W₁(rows) / distance(points), median over pairs of rows; dark is contraction, 0 "
        "none. Right: this model less keys permuted; blue contracts more than overlap alone, "
        "orange less, white is 0. Rows are compared on the keys both see, "
        f"renormalised{kept} (median over pairs of the smaller share, then over heads). "
        f"{count(silent, 'head')} abstained; {source.basis(CONTRACTION.name)}."
    )


@part()
def _curvature_maps(source: Source) -> str:
    figures.curvature(source, "kappa")  # raises where there is no map at all
    maps = _maps(
        source,
        ("This model", "curvature", lambda s: figures.curvature(s, "kappa")),
        ("Keys permuted", "curvature-null", lambda s: figures.curvature(s, "keys_permuted")),
        ("Difference", "curvature-difference", figures.curvature_difference),
    )
    return (
        "<p>Each query spreads its attention over the keys. κ compares the distance between the "
        "attention of two queries with the distance between their two points: 1 means that both "
        "attend to the same place, 0 that attention does not change their distance, a negative "
        "value that it moves them apart. Permuted keys preserve the overlap of two rows but not "
        "where they attend: what remains is contraction by overlap alone. The verdict is about the "
        "difference of the two maps.</p>"
        f"<figure>{key(FIGURES['curvature'].entries(source))}{maps}"
        f"<figcaption>{html_text(_curvature_caption(source))}</figcaption></figure>"
        f"{numbers(source, 'curvature')}"
    )


_RESPONSES = {"temperature": "Response to temperature", "key_norm": "Response to key norms"}


def _response_caption(source: Source) -> str:
    few = max(column(source.table("curvature_response", "prompts"), "prompts"))
    return (
        "Median κ over all heads and pairs with its interval, and (grey) of each layer, with "
        f"attention altered at all layers of the running model at once; n = {few:g} prompts."
    )


@part()
def _response(source: Source, kind: str) -> str:
    picture = figures.response(source, kind)
    return figure(f"response-{kind}", picture, _response_caption(source))


@part()
def _responses(source: Source) -> str:
    source.table("curvature_response", "prompts")
    panels = "".join(
        f"<div><h3>{title}</h3>{_response(source, kind)}</div>"
        for kind, title in _RESPONSES.items()
    )
    legend = key(FIGURES["curvature_response"].entries(source))
    return f'{legend}<div class="pair">{panels}</div>{numbers(source, "curvature_response")}'


def _evolution_caption(source: Source) -> str:
    return (
        "Share of tokens for which some step size makes the step a proximal one: the divergence "
        "from the final output falls by at least what the step cost, and the distance to it "
        "shrinks by as much as that fall demands (an evolution variational inequality). A "
        "surrogate: on finitely many outcomes an exact descent may violate it too, so compare "
        "it with its references. Abstained layers, and the last step, which satisfies it by "
        "construction, are left out; "
        f"{source.basis('EVI: share of steps')}."
    )


def evolution_section(source: Source) -> str:
    """Whether each step descends towards the final output."""
    return shown(source, "evolution", FIGURES["evi"]) + numbers(source, "evi")


FIGURES: dict[str, Figure] = {
    "heads": Figure(
        title="Attention entropy of every head",
        draw=panel_row({
            "Attention entropy, this model": lambda s: heads(s, "entropy_share"),
            "Attention entropy, random weights": lambda s: heads(s, "random_weights"),
            "Difference": heads_difference,
        }),
        caption=_heads_caption,
        key=(("cross", "collapsed head"),),
    ),
    "curvature": Figure(
        title="Does attention bring its points closer together?",
        draw=panel_row({
            "Curvature κ, this model": lambda s: figures.curvature(s, "kappa"),
            "Curvature κ, keys permuted": lambda s: figures.curvature(s, "keys_permuted"),
            "Difference": figures.curvature_difference,
        }),
        caption=_curvature_caption,
        key=(("cross", "head that abstains"),),
    ),
    "curvature_response": Figure(
        title="Response of the curvature",
        draw=panel_row({title: partial(figures.response, kind=kind)
                        for kind, title in _RESPONSES.items()}),
        caption=_response_caption,
        key=(("line", "all layers"), ("band", "interval"), ("rule layer", "one layer")),
    ),
    "evi": Figure(
        title="Steps that satisfy the EVI",
        draw=figures.evolution,
        caption=_evolution_caption,
        key=(*figures.SHARES.values(), ("band", "interval"), *SHADES),
    ),
}  # fmt: skip
