"""The verdicts of ``flowscope audit``, made while its stages measure.

Other instruments judge from the records alone; the rules of the audit are to be rewritten so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowscope.evidence import not_measured
from flowscope.instruments.audit.claims import LOCKING, VARIATION
from flowscope.instruments.audit.variation_rule import judge_locking, judge_variation
from flowscope.lab.claim import Abstention
from flowscope.records import Unavailable, Verdict

if TYPE_CHECKING:
    from flowscope.instruments.audit.measuring import Depth
    from flowscope.instruments.audit.subject import AuditBench

__all__ = ["contraction", "depth", "flow", "rotation"]


def depth(bench: AuditBench) -> list[Verdict]:
    """Whether the path is gentle enough to be a flow, and whether mobility locks it."""
    made: Depth = bench.shared("depth")
    if made.reading.space != "output":
        raise Abstention(made.reading.because)
    n, seed = len(bench.subject.prompts), bench.config.seed
    variation = judge_variation(made.evidence, claim=VARIATION, n=n, dtype="float32", seed=seed)
    locking = bench.shared("locking")
    if isinstance(locking, Unavailable):
        return [variation, not_measured(LOCKING, locking.reason)]
    return [
        variation,
        judge_locking(
            locking.correlation,
            locking.null,
            claim=LOCKING,
            exceeded=locking.exceeded,
            steps=locking.steps,
            informative=locking.informative,
        ),
    ]


def contraction(bench: AuditBench) -> list[Verdict]:
    """Whether attention contracts distances between its rows."""
    return [bench.shared("contraction")]


def flow(bench: AuditBench) -> list[Verdict]:
    """Whether a fitted flow predicts the layers of other prompts."""
    return [_verdict(bench, "flow")]


def rotation(bench: AuditBench) -> list[Verdict]:
    """Whether the motion is transport rather than rotation."""
    return [_verdict(bench, "rotation")]


def _verdict(bench: AuditBench, name: str) -> Verdict:
    paths = bench.shared("paths")
    if isinstance(paths, Unavailable):
        raise Abstention(paths.reason)
    verdict: Verdict = bench.shared(name)
    return verdict
