"""The verdicts of ``flowscope heads``: the heads against random weights and permuted keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowscope.instruments.heads.claims import DIRECTED, TRAINED
from flowscope.instruments.heads.irreversibility_rule import judge_irreversibility
from flowscope.instruments.heads.tables import irreversibility as read_irreversibility
from flowscope.records import Verdict

if TYPE_CHECKING:
    from flowscope.instruments.heads.measuring import Geometry, HeadsBench

__all__ = ["irreversibility"]

_CLAIMS = {"random weights": TRAINED, "keys permuted": DIRECTED}


def irreversibility(bench: HeadsBench) -> list[Verdict]:
    """Whether heads are further from equilibrium than each reference."""
    geometry: Geometry = bench.shared("geometry")
    verdicts = []
    for reference, other in geometry.references.items():
        numbers = read_irreversibility(
            geometry.reading,
            reference,
            other,
            geometry.table,
            geometry.counts,
            geometry.few_counts,
            seed=bench.config.seed,
        )
        verdicts.append(
            judge_irreversibility(
                numbers.production,
                numbers.null,
                claim=_CLAIMS[reference],
                reference=reference,
                effect=numbers.effect,
                interval=numbers.interval,
                labels=numbers.labels,
                chain=bench.config.chain,
            )
        )
    return verdicts
