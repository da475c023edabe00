"""``flowscope toy``: whether a coin is fair."""

from flowscope.instruments.toy.config import ToyConfig
from flowscope.lab.claim import ENDS, Claim, Column, Table
from flowscope.lab.instrument import Instrument, Stage

__all__ = ["FAIR", "INSTRUMENT"]

FAIR = Claim(name="T1", says="the coin is fair", asks="Are heads as likely as tails?")
COLUMNS = (
    Column("round", "number of the round, from 1"),
    Column("share", "share of throws that show heads", beside=ENDS),
)
ROUNDS = Table(purpose="the share of heads in each round", keys=("round",), columns=COLUMNS)
STAGE = Stage(
    name="rounds", home=__name__, measure="measure.rounds", judge="judge.fairness",
    claims=(FAIR,), settings=("throws", "seed"), tables={"rounds": ROUNDS},
)  # fmt: skip
INSTRUMENT = Instrument(
    name="toy", home=__name__, config=ToyConfig, prepare="measure.prepare", stages=(STAGE,),
    result="page.Toy", page="page.PAGE", headline="page.show", main_table="rounds",
    studies=("fair_coins.STUDY",),
)  # fmt: skip
