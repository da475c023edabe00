"""What a policy does on some prompts: passes, changed answers, cost; by running it or by replay."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowscope.instruments.decode.answers import correct_answers, same_answers
from flowscope.instruments.decode.filling.loop import filled
from flowscope.instruments.decode.filling.steps import Plan
from flowscope.instruments.decode.policies.parallel import Plain
from flowscope.instruments.decode.policies.protocol import OnceRule, Policy
from flowscope.instruments.decode.policies.verified import Reference
from flowscope.instruments.decode.reference.measure import Batch, Part, agreeing
from flowscope.instruments.decode.subject import DecodeBench
from flowscope.models.infilling.templates import canvas_of

__all__ = ["Outcome", "outcome_of"]

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcome:
    """A policy on the prompts of a part, one number a prompt.

    Attributes
    ----------
    policy
        The policy.
    passes, rows, seconds
        Passes of the model that a prompt was in, sequences run for it, time (NaN where the outcome
        was taken up from an earlier run).
    same, correct
        Whether its answer is that of the reference; whether it is right (NaN where not known).
    """

    policy: Policy
    passes: NDArray[np.int64]
    rows: NDArray[np.int64]
    seconds: NDArray[np.float64]
    same: NDArray[np.bool_]
    correct: NDArray[np.float64]


def outcome_of(bench: DecodeBench, part: Part, policy: Policy) -> Outcome:
    """Try a policy on the prompts of a part.

    A rule that follows the reference until it fills all is read from the record of the reference:
    it would make the same passes. So is a fixed number of positions a pass that is that of the
    reference. Every other policy is run, a shard for each threshold and batch, so that a run that
    was stopped goes on behind its last batch.
    """
    if isinstance(policy, Reference) or _is_the_reference(policy, bench.subject.plan):
        steps = part.passes
        same = np.ones(len(part), bool)
        return Outcome(
            policy=policy, passes=steps, rows=steps, seconds=part.seconds, same=same,
            correct=part.correct,
        )  # fmt: skip
    if isinstance(policy, OnceRule):
        return _replayed(bench, part, policy)
    name = f"{part.name}-{policy.name}-{policy.threshold:g}"
    bench.list_pass(f"{policy.name} {policy.threshold:g} on the {part.name} prompts", len(part))
    pieces: list[Arrays] = []
    seconds: list[NDArray[np.float64]] = []
    for batch in part.batches:
        made: list[float] = []
        make = partial(_run_batch, bench, batch, policy, made)
        pieces.append(bench.shard(f"{name}-{batch.start // bench.config.batch:05d}", make))
        time = made[0] if made else np.nan  # what an earlier run made took no time now
        seconds.append(np.full(len(batch.templates), time))
    arrays = {key: np.concatenate([piece[key] for piece in pieces]) for key in pieces[0]}
    return Outcome(policy=policy, seconds=np.concatenate(seconds), **arrays)


def _is_the_reference(policy: Policy, plan: Plan) -> bool:
    return isinstance(policy, Plain) and int(policy.threshold) == plan.tokens


def _replayed(bench: DecodeBench, part: Part, policy: OnceRule) -> Outcome:
    """What a rule would have done, from the record of the reference."""
    columns: dict[str, list[NDArray[Any]]] = {"passes": [], "same": [], "correct": []}
    for batch in part.batches:
        at = batch.trace.fired(policy)
        rows, last = np.arange(len(at)), len(batch.trace.top) - 1
        fires = at < batch.trace.passes
        place = np.minimum(at, last)
        same = agreeing(bench, batch)[place, rows] | ~fires
        ids = batch.filled_at(place, fires)
        columns["passes"].append(np.where(fires, at + 1, batch.trace.passes))
        columns["same"].append(same)
        correct = correct_answers(ids, batch.templates, bench.subject.checker, bench.config.eos)
        columns["correct"].append(correct)
    passes = _joined(columns["passes"]).astype(np.int64)
    # Its passes are those of the reference, and so is the time of each.
    seconds = part.seconds * passes / np.maximum(part.passes, 1)
    return Outcome(
        policy=policy, passes=passes, rows=passes, seconds=seconds,
        same=_joined(columns["same"]).astype(bool),
        correct=_joined(columns["correct"]).astype(np.float64),
    )  # fmt: skip


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.zeros(0)


def _run_batch(bench: DecodeBench, batch: Batch, policy: Policy, seconds: list[float]) -> Arrays:
    subject, size, eos = bench.subject, len(batch.templates), bench.config.eos
    canvas = canvas_of(subject.made, batch.templates, range(batch.start, batch.start + size))
    done = filled(subject.made, canvas, policy, subject.plan, batch=bench.config.batch)
    seconds.append(done.seconds / size)
    ids = done.ids.cpu().numpy()
    return {
        "passes": done.passes.cpu().numpy(),
        "rows": done.rows.cpu().numpy(),
        "same": same_answers(ids, batch.ids, batch.templates, subject.checker, eos),
        "correct": correct_answers(ids, batch.templates, subject.checker, eos),
    }
