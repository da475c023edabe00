"""The sections of the page between the verdicts and the appendix: a figure, its key, its caption.

A figure is a ``<figure>`` with an empty box, its data as JSON beside it, a key in words, and a
caption of one sentence on what is seen plus the basis (n, interval method).
"""

from collections.abc import Callable
from functools import partial

from flowscope.instruments.audit.claims import CONTRACTION, LOCKING
from flowscope.instruments.audit.figures import (
    curvature_figures,
    depth_figures,
    head_figures,
    simplex_figures,
)
from flowscope.instruments.audit.figures.depth_tables import gate
from flowscope.instruments.audit.figures.flow_sections import (
    FLOW_FIGURES,
    SHADES,
    depth_loss_section,
    flow_section,
    rotation_section,
)
from flowscope.instruments.audit.figures.spans import spans
from flowscope.instruments.audit.figures.sweep_figures import (
    SWEEP_FIGURES,
    identification_section,
    temperature_section,
)
from flowscope.instruments.audit.figures.token_map import token_data
from flowscope.instruments.audit.figures.token_picture import token_picture
from flowscope.report.escaping import html_text, json_island
from flowscope.report.figure_html import figure, key, part, plot, shown
from flowscope.report.listings import listing, numbers
from flowscope.report.numerals import count, percent
from flowscope.report.panels import panel_row
from flowscope.report.source import Source, column, words
from flowscope.report.spec import Figure, Section
from flowscope.report.theme import Picture

__all__ = ["FIGURES", "body_sections"]


def body_sections(source: Source) -> list[Section]:
    """Sections of the page in order."""
    return [
        ("map", "Where each token is decided", _map),
        ("variation", "How far each layer moves the output", _variation),
        ("locking", "Locking", _locking),
        ("depth", "Certainty along depth", _certainty),
        ("heads", "Attention entropy of every head", _heads),
        ("curvature", "Does attention bring its points closer together?", _curvature),
        ("evolution", "Is the output path a descent?", _evolution),
        ("flow", "Can a flow predict the layers?", flow_section),
        ("last-layers", "How much do the last layers contribute?", depth_loss_section),
        ("rotation", "Does the motion rotate?", rotation_section),
        *(_SWEEPS if source.study else ()),
        ("path", "One path on the simplex", _path),
        ("jumps", "Jumps and segments", _jumps),
    ]


_SWEEPS: list[Section] = [
    ("identification", "Does depth settle?", identification_section),
    ("temperature", "Temperature of the output", temperature_section),
]
"""What only a study measures."""


def _map_caption(source: Source) -> str:
    data = token_data(source)
    rest = data["left_out"]
    left_out = f" {count(rest, 'prompt')} more in tables/tokens.csv." if rest else ""
    return (
        "Each cell is a token (column) at a layer (row): the word is the token that the model "
        "would predict there, the colour is the chosen quantity. n = "
        f"{count(len(data['prompts']), 'prompt')}, single measurements without intervals; grey "
        f"layer numbers: abstained.{left_out}"
    )


def _map(source: Source) -> str:
    data, caption = token_data(source), _map_caption(source)
    return (
        "<p>Mobility measures how much the output can still change: it is low before the model "
        "begins to decide and low again after it has decided. The dark band between is where the "
        "decision is made.</p>"
        '<figure id="token-map"><div class="controls">'
        '<label>Prompt <select id="map-prompt"></select></label>'
        '<label>Colour <select id="map-quantity"></select></label>'
        '<label class="check"><input type="checkbox" id="map-words" checked> words</label>'
        '<span class="legend"><span id="map-low"></span><span id="map-ramp"></span>'
        '<span id="map-high"></span></span></div>'
        '<div class="scroll" id="map-scroll" tabindex="0" role="region" '
        'aria-label="token by layer map; arrow keys move between cells"></div>'
        f"<figcaption>{html_text(caption)}</figcaption></figure>"
        f'<script type="application/json" id="data-tokens">{json_island(data)}</script>'
    )


def _variation_caption(source: Source) -> str:
    stretches = spans(source)
    layers = sum(s.last - s.first + 1 for s in stretches)
    passing = sum(s.last - s.first + 1 for s in stretches if s.passes)
    seen = f"{passing} of {layers} steps lie in segments that pass the gate. " if layers else ""
    hidden = "space" in source.rows("layers")
    return (
        "Median over tokens of the squared relative step of the "
        f"{'hidden states' if hidden else 'logits'} into each layer. "
        f"{seen}Band: interval of the median; {source.basis('relative_step')}."
    )


def _variation(source: Source) -> str:
    return shown(source, "variation", FIGURES["variation"]) + numbers(source, "layers")


def _locking_caption(source: Source) -> str:
    frame = source.rows("locking")
    informative = ""
    shares, weights = column(frame, "informative_share"), column(frame, "n")
    pairs = [(s, w) for s, w in zip(shares, weights, strict=True) if s == s and w > 0]
    if pairs:
        share = sum(s * w for s, w in pairs) / sum(w for _, w in pairs)
        informative = (
            f" The bound is informative in {percent(share)} of all rows, "
            "by tail mass in the lower panel."
        )
    return (
        "Total variation of one step against the mass outside the top token: median and quartiles "
        f"of token–layer rows per bin, with the median of the exact bound.{informative} "
        f"Quartiles are a spread, not an interval; {source.units('locking', LOCKING.name)}."
    )


def _locking(source: Source) -> str:
    return shown(source, "locking", FIGURES["locking"]) + numbers(source, "locking")


_GREY = "Blue: passing segments, grey: abstained"


def _entropy_caption(source: Source) -> str:
    return (
        "Entropy of the output distribution at each layer, median over tokens. "
        f"{_GREY}; {source.basis('entropy')}."
    )


def _agreement_caption(source: Source) -> str:
    return (
        "Share of tokens whose top token is already the final one. "
        f"{_GREY}; {source.basis('agreement')}."
    )


@part()
def _entropy(source: Source) -> str:
    return figure("entropy", depth_figures.entropy(source), _entropy_caption(source))


@part()
def _agreement(source: Source) -> str:
    return figure("agreement", depth_figures.agreement(source), _agreement_caption(source))


@part()
def _locking_depth(source: Source) -> str:
    picture = depth_figures.locking_depth(source)
    counts = column(source.rows("locking_depth", "count"), "count")
    total = f" (n = {sum(counts):.0f})" if counts else ""
    caption = "First layer after which the top token never changes again, over all tokens"
    return figure("locking-depth", picture, f"{caption}{total}; shares, without interval.")


def _certainty(source: Source) -> str:
    return (
        f'<div class="pair"><div><h3>Entropy</h3>{_entropy(source)}</div>'
        f"<div><h3>Agreement with the output</h3>{_agreement(source)}</div></div>"
        f"<h3>Locking depth</h3>{_locking_depth(source)}"
    )


@part()
def _beside(source: Source, draw: Callable[[Source, str], Picture], what: tuple[str, str, str]
            ) -> str:  # fmt: skip
    """Map of one column that stands beside another; or why it is not there."""
    column_name, name, label = what
    return plot(name, draw(source, column_name), label)


def _heads_caption(source: Source) -> str:
    collapsed = words(source.tables["heads"], "collapsed").count("True")
    return (
        "Attention entropy as a share of the largest possible (the logarithm of the number of "
        "visible keys), mean over rows; dark is spread out, pale is focused. "
        f"{count(collapsed, 'head')} marked as collapsed; {source.basis('heads')}."
    )


def _heads(source: Source) -> str:
    measured = head_figures.heads(source, "entropy_share")
    null = ("random_weights", "heads-null",
            "attention entropy by layer and head with random weights")  # fmt: skip
    box = plot("heads", measured, "attention entropy by layer and head of the model")
    return (
        f'<figure>{key(FIGURES["heads"].entries(source))}<div class="pair">'
        f"<div><h3>This model</h3>{box}</div>"
        f"<div><h3>Random weights</h3>{_beside(source, head_figures.heads, null)}</div></div>"
        f"<figcaption>{html_text(_heads_caption(source))}</figcaption></figure>"
        f"{numbers(source, 'heads')}"
    )


def _curvature(source: Source) -> str:
    return _curvature_maps(source) + _responses(source)


def _curvature_caption(source: Source) -> str:
    frame = source.tables["curvature"]
    silent = words(frame, "status").count("abstained")
    mass = sorted(v for v in column(frame, "kept_mass") if v == v)
    kept = f"; {percent(mass[len(mass) // 2])} of the mass of a row lies there" if mass else ""
    return (
        "κ = 1 − W₁(rows) / distance(points), median over pairs of rows; dark is contraction, 0 "
        f"none. Rows are compared on the keys both see, renormalised{kept} (median over pairs of "
        f"the smaller share, then over heads). {count(silent, 'head')} abstained; "
        f"{source.basis(CONTRACTION.name)}."
    )


@part()
def _curvature_maps(source: Source) -> str:
    measured = curvature_figures.curvature(source, "kappa")
    null = ("keys_permuted", "curvature-null", "curvature by layer and head with keys permuted")
    beside = _beside(source, curvature_figures.curvature, null)
    box = plot("curvature", measured, "curvature by layer and head of the model")
    return (
        "<p>Each query spreads its attention over the keys. κ compares the distance between the "
        "attention of two queries with the distance between their two points: 1 means that both "
        "attend to the same place, 0 that attention does not change their distance, a negative "
        "value that it moves them apart. Permuted keys preserve the overlap of two rows but not "
        "where they attend: what remains is contraction by overlap alone.</p>"
        f'<figure>{key(FIGURES["curvature"].entries(source))}<div class="pair">'
        f"<div><h3>This model</h3>{box}</div><div><h3>Keys permuted</h3>{beside}</div></div>"
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
    picture = curvature_figures.response(source, kind)
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


def _evolution(source: Source) -> str:
    return shown(source, "evolution", FIGURES["evi"]) + numbers(source, "evi")


def _path(source: Source) -> str:
    picture = simplex_figures.simplex_path(source)
    frame = source.rows("simplex_path", "prompt", "position")
    where = ""
    if len(frame):
        row = frame.iloc[0]
        where = f" of prompt {row['prompt']}, position {row['position']}"
    caption = (
        f"The output distribution{where}, from the embedding to the last layer, projected on its "
        "two leading tokens and the sum of all others; one measurement (n = 1), no interval."
    )
    return figure("path", picture, caption)


@part()
def _jump_list(source: Source) -> str:
    return f"<h3>Jumps</h3>{listing(source.table('jumps', 'layer'), 'table of jumps')}"


@part()
def _segment_list(source: Source) -> str:
    listed = listing(gate(source.table("segments")), "table of segments")
    return f"<h3>Segments</h3>{listed}{numbers(source, 'segments')}"


def _jumps(source: Source) -> str:
    return _jump_list(source) + _segment_list(source)


_SHARE_SHAPES = ("line", "rule random_weights", "rule linear_interpolation")

FIGURES: dict[str, Figure] = {
    "variation": Figure(
        title="How far each layer moves the output",
        draw=depth_figures.variation,
        caption=_variation_caption,
        key=(
            ("line", "relative step, median"),
            ("diamond", "jump"),
            ("hollow", "abstained layer"),
            *((f"rule {name}", label) for name, (label, _, _) in depth_figures.CONTROLS.items()),
            *SHADES,
        ),
    ),
    "locking": Figure(
        title="Locking",
        draw=simplex_figures.locking,
        caption=_locking_caption,
        key=(
            ("line", "TV of a step, median"),
            ("band", "quartiles"),
            ("rule random_weights", "exact bound, median"),
            ("bar", "share of rows where the bound is informative"),
        ),
    ),
    "entropy_agreement": Figure(
        title="Certainty along depth",
        draw=panel_row({"Entropy": depth_figures.entropy,
                        "Agreement with the output": depth_figures.agreement}),
        caption=lambda source: f"{_entropy_caption(source)} {_agreement_caption(source)}",
        key=(("line", "median over tokens"), ("band", "interval"), *SHADES),
    ),
    "heads": Figure(
        title="Attention entropy of every head",
        draw=panel_row({
            "Attention entropy, this model": lambda s: head_figures.heads(s, "entropy_share"),
            "Attention entropy, random weights": lambda s: head_figures.heads(s, "random_weights"),
        }),
        caption=_heads_caption,
        key=(("cross", "collapsed head"),),
    ),
    "curvature": Figure(
        title="Does attention bring its points closer together?",
        draw=panel_row({
            "Curvature κ, this model": lambda s: curvature_figures.curvature(s, "kappa"),
            "Curvature κ, keys permuted": lambda s: curvature_figures.curvature(s, "keys_permuted"),
        }),
        caption=_curvature_caption,
        key=(("cross", "head that abstains"),),
    ),
    "curvature_response": Figure(
        title="Response of the curvature",
        draw=panel_row({title: partial(curvature_figures.response, kind=kind)
                        for kind, title in _RESPONSES.items()}),
        caption=_response_caption,
        key=(("line", "all layers"), ("band", "interval"), ("rule layer", "one layer")),
    ),
    "evi": Figure(
        title="Steps that satisfy the EVI",
        draw=curvature_figures.evolution,
        caption=_evolution_caption,
        key=(
            *zip(_SHARE_SHAPES, (label for label, _, _ in curvature_figures.SHARES.values()),
                 strict=True),
            ("band", "interval"),
            *SHADES,
        ),
    ),
    "token_map": Figure(title="Mobility and top token", draw=token_picture, caption=_map_caption),
    **FLOW_FIGURES,
    **SWEEP_FIGURES,
}  # fmt: skip
"""Figures of a depth audit by the name of their file."""
