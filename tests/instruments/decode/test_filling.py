"""The loop that fills: exact laws, brute force, blocks, orders, endings, several lengths."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tests.instruments.decode.exact import (
    blank_templates,
    by_enumeration,
    chain,
    independent,
    infiller_of,
    parity,
)

from flowscope.errors import InvalidInputError
from flowscope.instruments.decode.filling.loop import filled
from flowscope.instruments.decode.filling.steps import Plan
from flowscope.instruments.decode.filling.trace import Recorder, Trace
from flowscope.instruments.decode.policies.catalogue import POLICIES, policy_named
from flowscope.models.infilling.templates import Template, canvas_of

REFERENCE = policy_named("reference")
SURE = [name for name in POLICIES if name not in ("plain", "reference")]


def markov(seed=0, outcomes=3, length=8):
    """A chain, and the same joint law as an array."""
    rng = np.random.default_rng(seed)
    start, step = rng.dirichlet(np.ones(outcomes)), rng.dirichlet(np.ones(outcomes), outcomes)
    joint = start
    for _ in range(length - 1):
        joint = joint[..., None] * step
    return chain(start, step), by_enumeration(joint)


def random_templates(rng, made, count, lengths, share=0.7):
    templates = []
    for _ in range(count):
        n = int(rng.integers(*lengths))
        blank = rng.random(n) < share
        blank[rng.integers(n)] = True
        ids = rng.integers(0, made.mask, n)
        templates.append(Template(ids=ids, blank=blank, truth=ids))
    return templates


@pytest.mark.parametrize("order", ["confidence", "margin", "entropy", "random"])
@pytest.mark.parametrize("plan", [{}, {"tokens": 3}, {"block": 3}, {"temperature": 1.0}])
def test_a_markov_chain_is_filled_as_by_brute_force(order, plan):
    """Forward–backward against the sum over all 6,561 sequences of eight sites."""
    messages, brute = markov()
    rng = np.random.default_rng(1)
    templates = random_templates(rng, messages, 6, (8, 9))
    plan = Plan(order=order, **plan)
    one = filled(messages, canvas_of(messages, templates), REFERENCE, plan)
    two = filled(brute, canvas_of(brute, templates), REFERENCE, plan)
    assert torch.equal(one.ids, two.ids)
    assert torch.equal(one.filled_at, two.filled_at)
    assert torch.equal(one.passes, one.planned)


@pytest.mark.parametrize("name", SURE)
def test_independent_bits_take_one_pass_beside_the_patience_of_the_policy(name):
    made = independent(0.9999)
    canvas = canvas_of(made, blank_templates(3, 9, made.mask))
    policy = policy_named(name)
    done = filled(made, canvas, policy, Plan())
    reference = filled(made, canvas, REFERENCE, Plan())
    assert torch.equal(done.ids, reference.ids)
    assert int(done.passes.max()) <= 1 + policy.patience
    assert reference.passes.tolist() == [9, 9, 9]


@pytest.mark.parametrize("name", ["threshold", "klass", "joint"])
@pytest.mark.parametrize("threshold", [0.51, 0.9])
def test_no_threshold_above_one_half_fills_two_free_bits_together(name, threshold):
    made = parity()
    canvas = canvas_of(made, blank_templates(64, 6, made.mask))
    done = filled(made, canvas, policy_named(name, threshold), Plan(temperature=1.0))
    assert (done.ids.sum(1) % 2 == 0).all()
    assert done.passes.tolist() == [6] * 64


def test_filling_in_one_pass_breaks_even_parity_in_half_of_the_cases():
    made = parity()
    canvas = canvas_of(made, blank_templates(2_000, 6, made.mask))
    done = filled(made, canvas, policy_named("plain", 6), Plan(temperature=1.0))
    assert done.passes.tolist() == [1] * 2_000
    odd = float((done.ids.sum(1) % 2).double().mean())
    assert abs(odd - 0.5) < 4 * 0.5 / 2_000**0.5


@pytest.mark.parametrize(
    "plan",
    [
        Plan(), Plan(order="random"), Plan(order="entropy", temperature=1.0),
        Plan(tokens=2, block=5), Plan(eos=1, block=4),
    ],
)  # fmt: skip
@pytest.mark.parametrize("drafts", [1, 3, 8])
def test_draft_and_verify_gives_the_reference_at_the_same_places(plan, drafts):
    made, _ = markov(seed=3)
    templates = random_templates(np.random.default_rng(2), made, 24, (6, 20))
    canvas = canvas_of(made, templates)
    reference = filled(made, canvas, REFERENCE, plan)
    done = filled(made, canvas, policy_named("draft", drafts), plan)
    assert torch.equal(done.ids, reference.ids)
    assert (done.passes <= reference.passes).all()
    assert (done.passes < reference.passes).any()
    assert (done.rows <= (drafts + 1) * done.passes).all()
    later = done.filled_at <= reference.filled_at  # never later than the reference
    assert bool(later[canvas.blank].all())


def test_prompts_of_several_lengths_are_filled_as_each_alone():
    made, _ = markov(seed=4)
    templates = random_templates(np.random.default_rng(5), made, 7, (3, 15))
    together = filled(made, canvas_of(made, templates), policy_named("threshold", 0.6), Plan())
    for row, template in enumerate(templates):
        alone = filled(made, canvas_of(made, [template]), policy_named("threshold", 0.6), Plan())
        n = len(template)
        assert torch.equal(together.ids[row, :n], alone.ids[0])
        assert int(together.passes[row]) == int(alone.passes[0])
    assert len(set(together.passes.tolist())) > 1  # rows finish apart


def test_what_is_not_blank_stays_and_blocks_are_filled_in_turn():
    made, _ = markov(seed=6)
    templates = random_templates(np.random.default_rng(7), made, 9, (9, 14))
    canvas = canvas_of(made, templates)
    done = filled(made, canvas, policy_named("threshold", 0.4), Plan(block=3))
    given = ~canvas.blank & canvas.present
    assert torch.equal(done.ids[given], canvas.ids[given])
    assert not bool((done.ids == made.mask)[canvas.blank].any())
    for row in range(len(templates)):
        at = done.filled_at[row][canvas.blank[row]].tolist()
        blocks = [at[k : k + 3] for k in range(0, len(at), 3)]
        assert all(max(a) < min(b) for a, b in pairwise(blocks))


def test_an_answer_ends_with_the_first_end_token_that_nothing_masked_precedes():
    """Position 2 is surely the end token 1; the others are 0."""

    def law(ids):
        logits = torch.zeros(*ids.shape, 2)
        logits[..., 0] = 3.0
        logits[:, 2, 1] = 9.0
        return logits

    made = infiller_of(law, 2)
    canvas = canvas_of(made, blank_templates(1, 6, made.mask))
    done = filled(made, canvas, REFERENCE, Plan(eos=1))
    assert done.ids.tolist() == [[0, 0, 1, 0, 0, 0]] or done.ids.tolist()[0][:3] == [0, 0, 1]
    left_to_right = filled(made, canvas, REFERENCE, Plan(eos=1, block=1))
    assert left_to_right.ids.tolist() == [[0, 0, 1, 1, 1, 1]]
    assert left_to_right.passes.tolist() == [3]


def test_drawn_tokens_follow_the_law_and_repeat_with_the_seed():
    made = independent(0.3)
    canvas = canvas_of(made, blank_templates(400, 5, made.mask))
    one = filled(made, canvas, policy_named("plain", 5), Plan(temperature=1.0, seed=1))
    again = filled(made, canvas, REFERENCE, Plan(temperature=1.0, seed=1))
    other = filled(made, canvas, REFERENCE, Plan(temperature=1.0, seed=2))
    assert torch.equal(one.ids, again.ids)  # noise belongs to prompt and position, not to passes
    assert not torch.equal(one.ids, other.ids)
    assert abs(float(one.ids.double().mean()) - 0.3) < 4 * (0.21 / 2_000) ** 0.5


def test_a_policy_that_fills_nothing_is_named():
    idle = SimpleNamespace(
        name="idle", patience=1, drafts=0, commits=lambda step: torch.zeros_like(step.masked)
    )
    made = independent(0.9)
    canvas = canvas_of(made, blank_templates(2, 3, made.mask), numbers=[4, 9])
    with pytest.raises(InvalidInputError, match=r"'idle' fills no position of prompt 4 in pass 1"):
        filled(made, canvas, idle, Plan())


@pytest.mark.parametrize(
    "name", [name for name, kind in POLICIES.items() if hasattr(kind, "fires")]
)
@pytest.mark.parametrize("factor", [0.02, 0.3, 1.0])
def test_rules_that_commit_once_are_read_from_the_record_as_if_they_had_run(name, factor):
    made, _ = markov(seed=8)
    templates = random_templates(np.random.default_rng(9), made, 20, (5, 12))
    canvas = canvas_of(made, templates)
    recorder = Recorder(canvas)
    reference = filled(made, canvas, REFERENCE, Plan(), listener=recorder, recording=True)
    blanks = [ids[blank] for ids, blank in zip(reference.ids, canvas.blank, strict=True)]
    most = max(map(len, blanks))
    final = np.array([[*row.tolist(), *[-1] * (most - len(row))] for row in blanks], np.int32)
    arrays = recorder.arrays()
    trace = Trace(
        top=arrays.pop("top"), laws=arrays, final=final, region=final >= 0,
        planned=reference.planned.numpy(),
    )  # fmt: skip
    default = POLICIES[name].default
    rule = policy_named(name, default * factor if name != "stable" else default / factor**2)
    at = trace.fired(rule)
    run = filled(made, canvas, rule, Plan())
    assert np.minimum(at + 1, trace.passes).tolist() == run.passes.tolist()
    same = (run.ids == reference.ids).all(1).numpy()
    fires = at < trace.passes
    place = np.minimum(at, len(trace.top) - 1)
    assert (trace.same[place, np.arange(len(at))] | ~fires).tolist() == same.tolist()


@pytest.mark.parametrize("plan", [Plan(), Plan(tokens=3), Plan(block=4), Plan(order="random")])
def test_as_many_positions_a_pass_as_the_reference_is_the_reference(plan):
    """A run takes the outcome of this policy from the record of the reference."""
    made, _ = markov(seed=10)
    canvas = canvas_of(made, random_templates(np.random.default_rng(11), made, 15, (5, 14)))
    one = filled(made, canvas, policy_named("plain", plan.tokens), plan)
    reference = filled(made, canvas, REFERENCE, plan)
    assert torch.equal(one.ids, reference.ids)
    assert torch.equal(one.filled_at, reference.filled_at)
