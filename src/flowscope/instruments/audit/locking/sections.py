"""The section on locking."""

from flowscope.instruments.audit.locking import LOCKING, figures
from flowscope.report.figure_html import part, shown
from flowscope.report.listings import numbers
from flowscope.report.numerals import percent
from flowscope.report.source import Source, column, words
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


def _slope_caption(source: Source) -> str:
    frame = source.rows("locking_slopes", "mixed")
    mixed = sum(word == "True" for word in words(frame, "mixed"))
    return (
        "Each token's step beside the steps of two other tokens of its prompt, laid out by their "
        "rankings: the slope of log(TV / TV of another token's step) on log δ, within prompts. "
        "Above 0, a nearly decided token is moved less than another token's step would move it; "
        "below 0, more; at 0, its own step is like any other. Filled: the layers that the verdict "
        f"uses ({mixed} of {len(frame)}), before which 10 to 90 % of tokens are decided. "
        "A layer whose tokens are all equally decided (standard deviation of log δ below 0.1) is "
        f"not drawn. Intervals are for one layer at a time; {source.basis(LOCKING.name)}."
    )


def locking_section(source: Source) -> str:
    """Movement of a step against the probability outside the top token."""
    return (
        shown(source, "locking", FIGURES["locking"])
        + numbers(source, "locking")
        + "<h3>Against the steps of other tokens</h3>"
        + shown(source, "locking_slope", FIGURES["locking_slope"])
        + numbers(source, "locking_slopes")
        + _prompt_numbers(source)
    )


@part()
def _prompt_numbers(source: Source) -> str:
    """The part of every prompt in the slope, closed; what the verdict is judged by."""
    source.table("locking_prompts", "pseudo_value")
    return numbers(source, "locking_prompts")


FIGURES: dict[str, Figure] = {
    "locking": Figure(
        title="Locking",
        draw=figures.locking,
        caption=_locking_caption,
        key=(
            figures.TV,
            ("band", "quartiles"),
            figures.BOUND,
            ("bar", "share of rows where the bound is informative"),
        ),
    ),
    "locking_slope": Figure(
        title="Locking against the steps of other tokens",
        draw=figures.locking_slope,
        caption=_slope_caption,
        key=(
            ("disc", "slope of a mixed layer, which the verdict uses"),
            ("hollow blue", "slope of another layer"),
            ("rule vacuous", "0: own steps are like the steps of others"),
        ),
        table="locking_slopes",
        verdicts=(LOCKING.name,),
    ),
}  # fmt: skip
