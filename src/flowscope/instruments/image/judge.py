"""The verdicts of ``flowscope image``, from the tables that its stages wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowscope.instruments.image.claims import GRADIENT, ORDER, PARITY
from flowscope.instruments.image.names import DECIDING
from flowscope.instruments.image.rules import judge_gradient, judge_order, judge_parity
from flowscope.lab.claim import Abstention
from flowscope.records import Verdict

if TYPE_CHECKING:
    from flowscope.instruments.image.measuring import ImageBench

__all__ = ["gradient", "order", "parity"]

_GUIDED = (
    "with guidance the field is not the score of any distribution: ODE and SDE may differ, and the "
    "field need not be a gradient"
)


def order(bench: ImageBench) -> list[Verdict]:
    """Whether the error of sampling falls at first order."""
    slopes = bench.records.read_table("weak_error_slope")
    return [judge_order(slopes, claim=ORDER, observable=DECIDING, seed=bench.config.seed)]


def parity(bench: ImageBench) -> list[Verdict]:
    """Whether flow and SDE share their marginals."""
    if bench.config.guidance != 1:
        raise Abstention(_GUIDED)
    table, p = bench.records.read_table("parity"), bench.shared("parity").tv_p_overall
    return [judge_parity(table, p, claim=PARITY, seed=bench.config.seed)]


def gradient(bench: ImageBench) -> list[Verdict]:
    """Whether the learned score is a gradient."""
    config = bench.config
    if config.guidance != 1:
        raise Abstention(_GUIDED)
    table, interval = bench.records.read_table("rotation"), bench.shared("rotation interval")
    degree, seed = config.rotation_degree, config.seed
    return [judge_gradient(table, interval, claim=GRADIENT, degree=degree, seed=seed)]
