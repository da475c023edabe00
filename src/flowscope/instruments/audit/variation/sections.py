"""The sections on variation: steps along depth, jumps and segments."""

from flowscope.instruments.audit.spans import SHADES, spans
from flowscope.instruments.audit.variation import figures
from flowscope.instruments.audit.variation.listings import gate
from flowscope.report.figure_html import part, shown
from flowscope.report.listings import listing, numbers
from flowscope.report.source import Source
from flowscope.report.spec import Figure

__all__ = ["FIGURES", "jumps_section", "variation_section"]


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


def variation_section(source: Source) -> str:
    """How far each layer moves the output."""
    return shown(source, "variation", FIGURES["variation"]) + numbers(source, "layers")


@part()
def _jump_list(source: Source) -> str:
    return f"<h3>Jumps</h3>{listing(source.table('jumps', 'layer'), 'table of jumps')}"


@part()
def _segment_list(source: Source) -> str:
    listed = listing(gate(source.table("segments")), "table of segments")
    return f"<h3>Segments</h3>{listed}{numbers(source, 'segments')}"


def jumps_section(source: Source) -> str:
    """Jumps and segments as lists."""
    return _jump_list(source) + _segment_list(source)


FIGURES: dict[str, Figure] = {
    "variation": Figure(
        title="How far each layer moves the output",
        draw=figures.variation,
        caption=_variation_caption,
        key=(
            ("line", "relative step, median"),
            ("diamond", "jump"),
            ("hollow", "abstained layer"),
            *figures.CONTROLS.values(),
            *SHADES,
        ),
    ),
}  # fmt: skip
