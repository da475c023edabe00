"""The sections of the page between the verdicts and the appendix: a figure, its key, its caption.

A figure is a ``<figure>`` with an empty box, its data as JSON beside it, a key in words, and a
caption of one sentence on what is seen plus the basis (n, interval method).
"""

from flowscope.instruments.audit.claims import CONTRACTION, LOCKING
from flowscope.instruments.audit.figures import (
    curvature_figures,
    depth_figures,
    head_figures,
    simplex_figures,
)
from flowscope.instruments.audit.figures.depth_tables import gate
from flowscope.instruments.audit.figures.flow_sections import (
    depth_loss_section,
    flow_section,
    rotation_section,
)
from flowscope.instruments.audit.figures.spans import spans
from flowscope.instruments.audit.figures.sweep_figures import (
    identification_section,
    temperature_section,
)
from flowscope.instruments.audit.figures.token_map import token_data
from flowscope.records import Unavailable
from flowscope.report.escaping import html_text, json_island
from flowscope.report.figure_html import figure, key, missing, plot
from flowscope.report.listings import listing, numbers
from flowscope.report.numerals import count, percent
from flowscope.report.source import Source, column, words
from flowscope.report.spec import Section

__all__ = ["body_sections"]

_SHADES = [("passing", "segment that passes the gate"), ("abstained", "abstained")]


def body_sections(source: Source) -> list[Section]:
    """Sections of the page in order."""
    return [
        ("map", "Where each token is decided", _map(source)),
        ("variation", "How far each layer moves the output", _variation(source)),
        ("locking", "Locking", _locking(source)),
        ("depth", "Certainty along depth", _certainty(source)),
        ("heads", "Attention entropy of every head", _heads(source)),
        ("curvature", "Does attention bring its points closer together?", _curvature(source)),
        ("evolution", "Is the output path a descent?", _evolution(source)),
        ("flow", "Can a flow predict the layers?", flow_section(source)),
        ("last-layers", "How much do the last layers contribute?", depth_loss_section(source)),
        ("rotation", "Does the motion rotate?", rotation_section(source)),
        *_sweeps(source),
        ("path", "One path on the simplex", _path(source)),
        ("jumps", "Jumps and segments", _jumps(source)),
    ]


def _sweeps(source: Source) -> list[Section]:
    """What only a study measures; a plain audit has no such section."""
    if not source.study:
        return []
    return [
        ("identification", "Does depth settle?", identification_section(source)),
        ("temperature", "Temperature of the output", temperature_section(source)),
    ]


def _map(source: Source) -> str:
    data = token_data(source)
    if isinstance(data, Unavailable):
        return missing(data)
    rest = data["left_out"]
    left_out = f" {count(rest, 'prompt')} more in tables/tokens.csv." if rest else ""
    caption = (
        "Each cell is a token (column) at a layer (row): the word is the token that the model "
        "would predict there, the colour is the chosen quantity. n = "
        f"{count(len(data['prompts']), 'prompt')}, single measurements without intervals; grey "
        f"layer numbers: abstained.{left_out}"
    )
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


def _variation(source: Source) -> str:
    stretches = spans(source)
    layers = sum(s.last - s.first + 1 for s in stretches)
    passing = sum(s.last - s.first + 1 for s in stretches if s.passes)
    seen = f"{passing} of {layers} steps lie in segments that pass the gate. " if layers else ""
    frame = source.table("layers")
    hidden = not isinstance(frame, Unavailable) and "space" in frame.columns
    caption = (
        "Median over tokens of the squared relative step of the "
        f"{'hidden states' if hidden else 'logits'} into each layer. "
        f"{seen}Band: interval of the median; {source.basis('relative_step')}."
    )
    entries = [
        ("line", "relative step, median"),
        ("diamond", "jump"),
        ("hollow", "abstained layer"),
        *((f"rule {name}", label) for name, (label, _, _) in depth_figures.CONTROLS.items()),
        *_SHADES,
    ]
    picture = depth_figures.variation(source)
    return figure("variation", picture, caption, key(entries)) + numbers(source, "layers")


def _locking(source: Source) -> str:
    frame = source.table("locking")
    informative = ""
    if not isinstance(frame, Unavailable):
        shares, weights = column(frame, "informative_share"), column(frame, "n")
        pairs = [(s, w) for s, w in zip(shares, weights, strict=True) if s == s and w > 0]
        if pairs:
            share = sum(s * w for s, w in pairs) / sum(w for _, w in pairs)
            informative = (
                f" The bound is informative in {percent(share)} of all rows, "
                "by tail mass in the lower panel."
            )
    caption = (
        "Total variation of one step against the mass outside the top token: median and quartiles "
        f"of token–layer rows per bin, with the median of the exact bound.{informative} "
        f"Quartiles are a spread, not an interval; {source.units('locking', LOCKING.name)}."
    )
    entries = [
        ("line", "TV of a step, median"),
        ("band", "quartiles"),
        ("rule random_weights", "exact bound, median"),
        ("bar", "share of rows where the bound is informative"),
    ]
    return figure("locking", simplex_figures.locking(source), caption, key(entries)) + numbers(
        source, "locking"
    )


def _certainty(source: Source) -> str:
    grey = "Blue: passing segments, grey: abstained"
    entropy = figure(
        "entropy",
        depth_figures.entropy(source),
        "Entropy of the output distribution at each layer, median over tokens. "
        f"{grey}; {source.basis('entropy')}.",
    )
    agreement = figure(
        "agreement",
        depth_figures.agreement(source),
        "Share of tokens whose top token is already the final one. "
        f"{grey}; {source.basis('agreement')}.",
    )
    depth = depth_figures.locking_depth(source)
    caption = "First layer after which the top token never changes again, over all tokens"
    frame = source.table("locking_depth", "count")
    total = "" if isinstance(frame, Unavailable) else f" (n = {sum(column(frame, 'count')):.0f})"
    histogram = figure("locking-depth", depth, f"{caption}{total}; shares, without interval.")
    return (
        f'<div class="pair"><div><h3>Entropy</h3>{entropy}</div>'
        f"<div><h3>Agreement with the output</h3>{agreement}</div></div>"
        f"<h3>Locking depth</h3>{histogram}"
    )


def _heads(source: Source) -> str:
    measured = head_figures.heads(source, "entropy_share")
    if isinstance(measured, Unavailable):
        return missing(measured)
    null = head_figures.heads(source, "random_weights")
    beside = (
        missing(null)
        if isinstance(null, Unavailable)
        else plot("heads-null", null, "attention entropy by layer and head with random weights")
    )
    collapsed = words(source.tables["heads"], "collapsed").count("True")
    caption = (
        "Attention entropy as a share of the largest possible (the logarithm of the number of "
        "visible keys), mean over rows; dark is spread out, pale is focused. "
        f"{count(collapsed, 'head')} marked as collapsed; {source.basis('heads')}."
    )
    box = plot("heads", measured, "attention entropy by layer and head of the model")
    return (
        f'<figure>{key([("cross", "collapsed head")])}<div class="pair">'
        f"<div><h3>This model</h3>{box}</div><div><h3>Random weights</h3>{beside}</div></div>"
        f"<figcaption>{html_text(caption)}</figcaption></figure>{numbers(source, 'heads')}"
    )


def _curvature(source: Source) -> str:
    measured = curvature_figures.curvature(source, "kappa")
    if isinstance(measured, Unavailable):
        return missing(measured) + _responses(source)
    null = curvature_figures.curvature(source, "keys_permuted")
    beside = (
        missing(null)
        if isinstance(null, Unavailable)
        else plot("curvature-null", null, "curvature by layer and head with keys permuted")
    )
    frame = source.tables["curvature"]
    silent = words(frame, "status").count("abstained")
    mass = sorted(v for v in column(frame, "kept_mass") if v == v)
    kept = f"; {percent(mass[len(mass) // 2])} of the mass of a row lies there" if mass else ""
    caption = (
        "κ = 1 − W₁(rows) / distance(points), median over pairs of rows; dark is contraction, 0 "
        f"none. Rows are compared on the keys both see, renormalised{kept} (median over pairs of "
        f"the smaller share, then over heads). {count(silent, 'head')} abstained; "
        f"{source.basis(CONTRACTION.name)}."
    )
    box = plot("curvature", measured, "curvature by layer and head of the model")
    return (
        "<p>Each query spreads its attention over the keys. κ compares the distance between the "
        "attention of two queries with the distance between their two points: 1 means that both "
        "attend to the same place, 0 that attention does not change their distance, a negative "
        "value that it moves them apart. Permuted keys preserve the overlap of two rows but not "
        "where they attend: what remains is contraction by overlap alone.</p>"
        f'<figure>{key([("cross", "head that abstains")])}<div class="pair">'
        f"<div><h3>This model</h3>{box}</div><div><h3>Keys permuted</h3>{beside}</div></div>"
        f"<figcaption>{html_text(caption)}</figcaption></figure>{numbers(source, 'curvature')}"
        + _responses(source)
    )


def _responses(source: Source) -> str:
    frame = source.table("curvature_response", "prompts")
    if isinstance(frame, Unavailable):
        return missing(frame)
    few = f"n = {max(column(frame, 'prompts')):g} prompts"
    titles = {"temperature": "Response to temperature", "key_norm": "Response to key norms"}
    parts = []
    for kind, title in titles.items():
        caption = (
            "Median κ over all heads and pairs with its interval, and (grey) of each layer, with "
            f"attention altered at all layers of the running model at once; {few}."
        )
        picture = curvature_figures.response(source, kind)
        parts.append(f"<div><h3>{title}</h3>{figure(f'response-{kind}', picture, caption)}</div>")
    legend = key([("line", "all layers"), ("band", "interval"), ("rule layer", "one layer")])
    return (
        f'{legend}<div class="pair">{"".join(parts)}</div>{numbers(source, "curvature_response")}'
    )


def _evolution(source: Source) -> str:
    caption = (
        "Share of tokens for which some step size makes the step a proximal one: the divergence "
        "from the final output falls by at least what the step cost, and the distance to it "
        "shrinks by as much as that fall demands (an evolution variational inequality). A "
        "surrogate: on finitely many outcomes an exact descent may violate it too, so compare "
        "it with its references. Abstained layers, and the last step, which satisfies it by "
        "construction, are left out; "
        f"{source.basis('EVI: share of steps')}."
    )
    labels = [label for label, _, _ in curvature_figures.SHARES.values()]
    shapes = ("line", "rule random_weights", "rule linear_interpolation")
    entries = [
        *zip(shapes, labels, strict=True),
        ("band", "interval"),
        *_SHADES,
    ]
    picture = curvature_figures.evolution(source)
    return figure("evolution", picture, caption, key(entries)) + numbers(source, "evi")


def _path(source: Source) -> str:
    frame = source.table("simplex_path", "prompt", "position")
    where = ""
    if not isinstance(frame, Unavailable):
        row = frame.iloc[0]
        where = f" of prompt {row['prompt']}, position {row['position']}"
    caption = (
        f"The output distribution{where}, from the embedding to the last layer, projected on its "
        "two leading tokens and the sum of all others; one measurement (n = 1), no interval."
    )
    return figure("path", simplex_figures.simplex_path(source), caption)


def _jumps(source: Source) -> str:
    jumps = source.table("jumps", "layer")
    if isinstance(jumps, Unavailable):
        parts = [missing(jumps)]
    else:
        parts = [f"<h3>Jumps</h3>{listing(jumps, 'table of jumps')}"]
    segments = source.table("segments")
    if isinstance(segments, Unavailable):
        return parts[0] + missing(segments)
    shown = listing(gate(segments), "table of segments")
    return f"{parts[0]}<h3>Segments</h3>{shown}{numbers(source, 'segments')}"
