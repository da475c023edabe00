"""What each policy fills in one pass, against its definition written out for one row."""

import math

import numpy as np
import pytest
import torch

from flowscope.errors import InvalidInputError
from flowscope.instruments.decode.filling.laws import Laws
from flowscope.instruments.decode.filling.steps import Step, best_positions
from flowscope.instruments.decode.policies.catalogue import POLICIES, policy_named

PUBLISHED = {
    "threshold": 0.9, "factor": 1.0, "entropy-bound": 0.1, "klass": 0.9, "prophet": 1.0,
    "sched-linear": 1.0, "sched-cosine": 1.0, "sched-exponential": 1.0, "stable": 0.005,
    "draft": 8.0,
}  # fmt: skip


def laws(rng, rows=40, width=9, tops=None):
    first = 1 - rng.random((rows, width)) ** 4 * 0.6
    entropy = -first * np.log(first) + 0.3 * (1 - first)
    values = {
        "first": first, "second": (1 - first) * 0.9, "gap": 12 * rng.random((rows, width)),
        "entropy": entropy, "mobility": first, "divergence": 0.03 * rng.random((rows, width)),
        "variation": first, "cool_divergence": first, "cool_margin": first,
    }  # fmt: skip
    top = rng.integers(0, 2, (rows, width)) if tops is None else tops
    return Laws(
        top=torch.tensor(top), **{name: torch.tensor(value) for name, value in values.items()}
    )


@pytest.fixture(scope="module")
def step():
    """A pass of forty rows: some positions filled, some outside of the answer or of the block."""
    rng = np.random.default_rng(0)
    now = laws(rng)
    tops = now.top.numpy().copy()
    tops[::2, 0] ^= 1
    before = laws(rng, tops=tops)
    masked = torch.tensor(rng.random((40, 9)) < 0.8)
    masked[:, 3] = True
    opened = masked & torch.tensor(np.arange(9) < 7)
    passes = torch.tensor(rng.integers(1, 10, 40))
    return Step(
        trail=[before, now], masked=masked, region=torch.tensor(rng.random((40, 9)) < 0.7),
        open=opened, best=best_positions(now.first, opened, 1), score=now.first, passes=passes,
        planned=torch.full((40,), 9),
    )  # fmt: skip


def by_hand(name, step, threshold):
    """Positions by the definition, one row after the other."""
    now, before = step.laws, step.trail[0]
    rows = []
    for r in range(len(step.masked)):
        open_ = [k for k in range(9) if step.open[r, k]]
        sure = sorted(open_, key=lambda k: -float(now.first[r, k]))
        chosen = set(sure[:1])
        if name == "threshold":
            chosen |= {k for k in open_ if now.first[r, k] >= threshold}
        elif name == "factor":
            for n, k in enumerate(sure, 1):
                if not (n + 1) * (1 - float(now.first[r, k])) < threshold:
                    break
                chosen.add(k)
        elif name == "entropy-bound":
            calm = sorted(open_, key=lambda k: float(now.entropy[r, k]))
            for n, k in enumerate(calm, 1):
                if sum(float(now.entropy[r, j]) for j in calm[: n - 1]) <= threshold:
                    chosen.add(k)
        elif name == "klass":
            chosen |= {
                k for k in open_
                if now.first[r, k] > threshold
                and now.divergence[r, k] < 0.01 and before.divergence[r, k] < 0.01
            }  # fmt: skip
        rows.append([k in chosen for k in range(9)])
    return torch.tensor(rows)


@pytest.mark.parametrize("name", ["threshold", "factor", "entropy-bound", "klass"])
@pytest.mark.parametrize("scale", [0.5, 1.0])
def test_a_parallel_policy_fills_what_its_definition_says(name, scale, step):
    threshold = POLICIES[name].default * scale
    chosen = policy_named(name, threshold).commits(step)
    assert torch.equal(chosen, by_hand(name, step, threshold))
    assert int(chosen.sum()) > 40  # more than one each
    assert not bool((chosen & ~step.open).any())


def fires_by_hand(name, step, threshold):
    now, before, rows = step.laws, step.trail[0], []
    for r in range(len(step.masked)):
        masked = [k for k in range(9) if step.masked[r, k]]
        waiting = [k for k in masked if step.region[r, k]] or masked
        progress = (int(step.passes[r]) - 1) / int(step.planned[r])
        gap = sum(float(now.gap[r, k]) for k in waiting) / len(waiting)
        entropy = sum(float(now.entropy[r, k]) for k in waiting) / len(waiting)
        levels = {
            "prophet": 7.5 if progress < 0.33 else 5.0 if progress < 0.67 else 2.5,
            "sched-linear": 7.5 - 5 * progress,
            "sched-cosine": 2.5 + 2.5 * (1 + math.cos(math.pi * progress)),
            "sched-exponential": 2.5 + 5 * math.exp(-2 * progress),
        }
        if name == "stable":
            still = all(now.top[r, k] == before.top[r, k] for k in masked)
            rows.append(still and entropy < threshold)
        elif name == "joint":
            rows.append(math.prod(float(now.first[r, k]) for k in waiting) >= threshold)
        else:
            rows.append(gap >= threshold * levels[name])
    return rows


@pytest.mark.parametrize(
    ("name", "threshold"),
    [("prophet", 1.0), ("sched-linear", 1.0), ("sched-cosine", 1.0), ("sched-exponential", 1.2),
     ("stable", 0.25), ("joint", 0.3)],
)  # fmt: skip
def test_a_rule_that_commits_once_fires_where_its_definition_says(name, threshold, step):
    rule = policy_named(name, threshold)
    fires = rule.fires(step)
    assert fires.tolist() == fires_by_hand(name, step, threshold)
    assert 0 < int(fires.sum()) < 40
    assert torch.equal(rule.commits(step), torch.where(fires[:, None], step.masked, step.best))


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_defaults(name):
    assert POLICIES[name].default == PUBLISHED[name]
    assert policy_named(name).threshold == PUBLISHED[name]


@pytest.mark.parametrize("name", [n for n in POLICIES if n != "reference"])
def test_grids_run_from_strict_to_loose_and_hold_the_default(name, step):
    """Positions that are filled never become fewer along the grid of a rule on one pass."""
    kind = POLICIES[name]
    assert kind.default in kind.grid
    filled = [int(policy_named(name, t).commits(step).sum()) for t in kind.grid]
    assert filled == sorted(filled)


def test_a_misspelt_policy_is_corrected():
    with pytest.raises(InvalidInputError, match="Did you mean 'prophet'"):
        policy_named("profet")
