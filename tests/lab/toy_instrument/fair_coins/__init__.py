"""``flowscope reproduce fair_coins``: what a textbook says of coins."""

from flowscope.instruments.toy.config import ToyConfig
from flowscope.lab.claim import CLAIMS_TABLE
from flowscope.lab.config import Config, setting
from flowscope.lab.statements import Statement, agreement_of, chance_of, statement_rows
from flowscope.lab.study import Study

__all__ = ["STUDY"]


class FairCoins(Config):
    """Settings of the study."""

    toy: ToyConfig = setting(ToyConfig(), "Settings of the throws")


def coin_table(run):
    """One row: the claim of the textbook, and the verdict on it."""
    (verdict,) = run.read_verdicts()
    return statement_rows([lambda: Statement(
        item="fair coin", where="page 1", says="coins are fair", measured=verdict.because,
        agrees=agreement_of(verdict.decision), rule="by its interval", by_chance=chance_of(),
    )])  # fmt: skip


STUDY = Study(
    name="fair_coins", home=__name__, source="000", config=FairCoins, reading="toy",
    settings="study.yaml", statements="coin_table", tables={"fair_coins": CLAIMS_TABLE},
)  # fmt: skip
