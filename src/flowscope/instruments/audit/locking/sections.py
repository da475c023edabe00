"""The section on locking."""

from flowscope.instruments.audit.locking import LOCKING, figures
from flowscope.report.figure_html import shown
from flowscope.report.listings import numbers
from flowscope.report.numerals import percent
from flowscope.report.source import Source, column
from flowscope.report.spec import Figure

__all__ = ["FIGURES", "locking_section"]


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


def locking_section(source: Source) -> str:
    """Movement of a step against the probability outside the top token."""
    return shown(source, "locking", FIGURES["locking"]) + numbers(source, "locking")


FIGURES: dict[str, Figure] = {
    "locking": Figure(
        title="Locking",
        draw=figures.locking,
        caption=_locking_caption,
        key=(
            ("line", "TV of a step, median"),
            ("band", "quartiles"),
            ("rule random_weights", "exact bound, median"),
            ("bar", "share of rows where the bound is informative"),
        ),
    ),
}  # fmt: skip
