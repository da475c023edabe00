"""How many rows of a table of claims would disagree by chance if every claim were true.

A row that intervals or tests decide carries ``by_chance``, a bound on the probability of a wrong
"no". The sum of these bounds over the rows that were judged bounds the expected number of such
rows, whether or not the rows depend on each other.
"""

from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

__all__ = ["Chance", "chance_of_claims"]

_JUDGED = ("yes", "no", "cannot be told")


@dataclass(frozen=True, kw_only=True)
class Chance:
    """Disagreement that chance alone explains.

    Attributes
    ----------
    rows
        Rows that an interval or a test judged.
    total
        Rows of the table.
    expected
        At most how many of these rows would disagree on average if every claim were true.
    recorded
        Whether the run says which rows intervals decide; runs of version 0.1 do not.
    """

    rows: int
    total: int
    expected: float
    recorded: bool = True

    @property
    def sentence(self) -> str:
        """How the number is counted, in words."""
        if not self.recorded:
            return "This run does not record which rows intervals decide."
        return (
            f"{self.rows} of {self.total} rows are decided by 95\u00a0% intervals or tests at "
            f"5\u00a0%. If every claim were true, at most {self.expected:.2g} of these rows would "
            "disagree by chance (0.05 for each interval or test that can decide a row); "
            "identities, closed forms and fixed thresholds are not counted."
        )

    def to_json(self) -> dict[str, Any]:
        """Document of plain values."""
        return {**asdict(self), "sentence": self.sentence}


def chance_of_claims(claims: pd.DataFrame) -> Chance:
    """Count what chance alone does to a table of claims."""
    if "by_chance" not in claims:
        return Chance(rows=0, total=len(claims), expected=0.0, recorded=False)
    numbers = pd.to_numeric(claims["by_chance"], errors="coerce")
    judged = numbers[claims["agrees"].isin(_JUDGED)].dropna()
    return Chance(rows=len(judged), total=len(claims), expected=round(float(judged.sum()), 6))
