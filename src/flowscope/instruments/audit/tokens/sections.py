"""The sections on tokens: map, certainty along depth, one path."""

from flowscope.instruments.audit.spans import SHADES
from flowscope.instruments.audit.tokens import figures
from flowscope.instruments.audit.tokens.simplex_figure import simplex_path
from flowscope.instruments.audit.tokens.token_map import token_data
from flowscope.instruments.audit.tokens.token_picture import token_picture
from flowscope.report.drawing.panels import panel_row
from flowscope.report.escaping import html_text, json_island
from flowscope.report.figure_html import figure, part
from flowscope.report.numerals import count
from flowscope.report.source import Source, column
from flowscope.report.spec import Figure

__all__ = ["FIGURES", "certainty_section", "map_section", "path_section"]


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


def map_section(source: Source) -> str:
    """Every layer of the first tokens, as a map."""
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
    return figure("entropy", figures.entropy(source), _entropy_caption(source))


@part()
def _agreement(source: Source) -> str:
    return figure("agreement", figures.agreement(source), _agreement_caption(source))


@part()
def _locking_depth(source: Source) -> str:
    picture = figures.locking_depth(source)
    counts = column(source.rows("locking_depth", "count"), "count")
    total = f" (n = {sum(counts):.0f})" if counts else ""
    caption = "First layer after which the top token never changes again, over all tokens"
    return figure("locking-depth", picture, f"{caption}{total}; shares, without interval.")


def certainty_section(source: Source) -> str:
    """Entropy, agreement with the output and locking depth."""
    return (
        f'<div class="pair"><div><h3>Entropy</h3>{_entropy(source)}</div>'
        f"<div><h3>Agreement with the output</h3>{_agreement(source)}</div></div>"
        f"<h3>Locking depth</h3>{_locking_depth(source)}"
    )


def path_section(source: Source) -> str:
    """One path on the simplex."""
    picture = simplex_path(source)
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


FIGURES: dict[str, Figure] = {
    "entropy_agreement": Figure(
        title="Certainty along depth",
        draw=panel_row({"Entropy": figures.entropy,
                        "Agreement with the output": figures.agreement}),
        caption=lambda source: f"{_entropy_caption(source)} {_agreement_caption(source)}",
        key=(("line", "median over tokens"), ("band", "interval"), *SHADES),
    ),
    "token_map": Figure(title="Mobility and top token", draw=token_picture, caption=_map_caption),
}  # fmt: skip
