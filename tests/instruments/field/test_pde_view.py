"""The study of source 001: training, resuming, what its stages measure, and what it refuses."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from flowscope.errors import InvalidInputError
from flowscope.instruments.field.pde_view import PdeView
from flowscope.instruments.field.pde_view.alignment.attention import kernel_agreement, uniform
from flowscope.instruments.field.pde_view.names import ARMS
from flowscope.instruments.field.pde_view.networks import network
from flowscope.instruments.field.pde_view.rates.measure import largest_place
from flowscope.instruments.field.pde_view.summaries import summary
from flowscope.instruments.field.pde_view.tasks import task
from flowscope.instruments.field.pde_view.trained import MEASURES, _read
from flowscope.instruments.field.pde_view.training import measure
from flowscope.instruments.field.pde_view.training.loop import Descent, schedule
from flowscope.lab import registry
from flowscope.lab.study import reproduce

STUDY = registry.study("pde_view")
SIZES = [
    "width=8", "heads=2", "blocks=3", "steps=12", "distillation_steps=10", "rate_steps=10",
    "examples=40", "tested=16", "minibatch=4", "informed=10", "places=4", "field.tokens=12",
    "field.prompts=8", "arms=[transformer, no_norm, simulator]",
]  # fmt: skip


def settings(*more):
    return STUDY.resolved({}, [*SIZES, *more])


def run(folder, *more):
    return reproduce("pde_view", progress=False, overrides=[*SIZES, *more], out=str(folder))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A tiny run of the study."""
    return run(tmp_path_factory.mktemp("pde_view"))


def test_descent_is_adam():
    torch.manual_seed(0)
    first, x, y = nn.Linear(5, 3), torch.randn(20, 5), torch.randint(3, (20,))
    second = nn.Linear(5, 3)
    second.load_state_dict(first.state_dict())
    rates = schedule(30, 0.1)
    Descent(first, lambda step: nn.functional.cross_entropy(first(x), y), rates, [True, True]).run(
        graph=False
    )
    adam = torch.optim.Adam(second.parameters(), lr=1.0)
    for rate in rates:
        adam.param_groups[0]["lr"] = float(rate)
        adam.zero_grad()
        nn.functional.cross_entropy(second(x), y).backward()
        adam.step()
    torch.testing.assert_close(first.weight, second.weight)


def test_recorded_gradient_counts_the_chosen_weights_alone():
    layer = nn.Linear(2, 1)
    left = Descent(layer, lambda step: layer.bias.sum() * 3 + layer.weight.sum() * 4,
                   schedule(10, 0.0), [False, True]).run(graph=False)  # fmt: skip
    assert left.gradients.tolist() == [3.0] * 10
    assert left.losses.isfinite().all()


def test_each_pass_takes_every_example_once():
    order = measure.batches(12, 7, 4, seed=0)
    assert order.shape == (7, 4)
    for start in (0, 3):
        assert sorted(order[start : start + 3].flatten().tolist()) == list(range(12))


def test_arms_of_a_seed_begin_with_the_same_weights():
    config = settings("arms=[transformer]")
    made = {arm: network(arm, config, 5, (15, 12, 10)) for arm in ARMS}
    first = made["transformer"]
    for other in made.values():
        assert torch.equal(other.embedding.weight, first.embedding.weight)
        assert torch.equal(
            other.core.attentions[0].inputs.weight, first.core.attentions[0].inputs.weight
        )
    again = network("transformer", config, 6, (15, 12, 10))
    assert not torch.equal(again.embedding.weight, first.embedding.weight)


def test_permuted_heads_are_matched_and_uniform_rows_have_their_closed_form():
    torch.manual_seed(0)
    truth = [torch.randn(3, 4, 6, 6).double().softmax(-1)]
    turned = [truth[0].roll(1, 1)]
    # means over heads, heads paired, cosine
    assert np.allclose(kernel_agreement(turned, truth), [0, 0, 1])
    even = kernel_agreement(uniform(truth), truth)
    rows = truth[0].mean(1)
    expected = np.log(6) + (rows * rows.log()).sum(-1).mean(-1)
    assert np.allclose(even[:, 0], expected)


def test_interval_is_over_seeds_where_there_are_several():
    values = np.stack([np.full((8, 1), 1.0), np.full((8, 1), 3.0)])
    mean, low, high = summary(values)
    assert mean == [2.0]
    assert high - low == pytest.approx(2 * 12.706 * np.sqrt(2) / np.sqrt(2), rel=1e-3)
    one = summary(np.arange(8.0)[None, :, None])
    assert one[1] < 3.5 < one[2]


@pytest.mark.parametrize("place", range(-1, 7))
def test_three_runs_find_the_largest_rate(place):
    tried = []
    assert largest_place(lambda k: tried.append(k) or k <= place, 7) == place
    assert len(tried) == 3


def test_tables_have_their_columns(finished):
    for name, table in STUDY.tables.items():
        frame = finished.run.read_table(name)
        assert list(frame) == list(table.schema), name
        assert not frame.duplicated(list(table.keys)).any(), name


def test_nulls_have_the_values_that_they_must_have(finished):
    frame = finished.run.read_table("alignment").set_index(["task", "path"])
    for name in ("listops", "topics"):
        assert frame.loc[name, "persistence"]["skill"] == pytest.approx(0, abs=1e-12)
        assert frame.loc[name, "straight line"]["skill"] > 0
        assert np.isfinite(frame.loc[name, "simulator, another seed"]["cosine"])
    depth = finished.run.read_table("depth")
    assert np.allclose(depth[depth["layer"] == 0]["fidelity"], 1)


def test_states_of_shorter_steps_tend_to_those_of_the_finest(finished):
    frame = finished.run.read_table("refinement")
    there = frame.groupby("n")["spectral"]
    assert there.min()[16] == pytest.approx(1, abs=1e-12)
    assert (frame["spectral"] <= 1 + 1e-12).all()
    assert there.mean()[8] > there.mean()[1]


def test_rounding_of_equal_tokens_is_no_direction():
    """Their rank was that of the rounding, 43 of 64, in states widened to double precision."""
    generator = torch.Generator().manual_seed(0)
    token = torch.randn(1, 1, 32, generator=generator)
    states = token * (1 + 6e-8 * torch.randn(1, 20, 32, generator=generator))
    rank = MEASURES.index("effective_rank")
    assert _read(states, token.expand(1, 20, 32))[0, rank] == pytest.approx(1)
    apart = torch.randn(1, 20, 32, generator=generator)
    assert _read(apart, token.expand(1, 20, 32))[0, rank] > 10


def test_every_statement_says_what_decided_it(finished):
    claims = finished.claims
    assert len(claims) == 24
    assert claims["rule"].str.len().min() > 20
    # one seed: two trainings cannot be compared
    pairs = claims[claims["rule"].str.contains("over seeds")]
    assert set(pairs["agrees"]) <= {"cannot be told", "not measured"}
    assert set(claims["agrees"]) <= {"yes", "no", "cannot be told", "not measured"}


def test_report_shows_claims_and_figures_and_asks_for_no_table_of_the_instrument(finished):
    page = finished.report().read_text(encoding="utf-8")
    assert "What the source says, what we measure" in page
    assert "Does a simulator follow the transformer?" in page
    assert "this run has no table" not in page
    assert "table blocks" not in page


def test_a_killed_study_trains_only_what_is_left(tmp_path, monkeypatch, finished):
    made, calls = measure._made, []

    def killed(bench, task, arm, seed, advance):
        if len(calls) == 3:
            raise KeyboardInterrupt
        calls.append((task.name, arm, seed))
        return made(bench, task, arm, seed, advance)

    monkeypatch.setattr(measure, "_made", killed)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path)
    first, calls[:] = list(calls), []
    monkeypatch.setattr(measure, "_made", lambda *a: calls.append((a[1].name, *a[2:4])) or made(*a))
    again = run(tmp_path)
    assert first == [("listops", "transformer", 0), ("listops", "no_norm", 0),
                     ("listops", "simulator", 0)]  # fmt: skip
    assert len(calls) == 10 - 3
    assert not set(first) & set(calls)
    left, right = (r.run.read_table("networks") for r in (finished, again))
    assert left.equals(right)


def _untrained(*_):
    raise AssertionError("a network is trained again")


def test_the_whole_study_borrows_the_networks_of_its_parts(tmp_path, monkeypatch):
    few = ("tasks=[listops]", "arms=[transformer]", "students=[]", "rate_steps=0")
    for seed in (0, 1):
        run(tmp_path, *few, f"seeds=[{seed}]", "rivals=false")
    monkeypatch.setattr(measure, "_made", _untrained)
    whole = run(tmp_path, *few, "seeds=[0, 1]")
    assert whole.run.read_table("networks")["seed"].tolist() == [0, 1]
    assert set(whole.run.read_table("depth")["over"]) == {"seeds"}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["arms=[simulator]"], "arms must hold the transformer"),
        (["seeds=[1, 1]"], r"seeds must not name one twice; got \[1, 1\]"),
        (["heads=3"], "heads must divide the width 8; got 3"),
        (["field.prompts=7"], "must be 8 to tested = 16; got 7"),
        (["minibatch=50"], "at most the number of examples, 40 of listops; got 50"),
        (["tasks=[mnist]"], "no folder was given"),
        (["tasks=[texts]"], "no file was given"),
        (["field.device=cuda:99"], "cannot be used here"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tmp_path, more, message):
    with pytest.raises(InvalidInputError, match=message):
        run(tmp_path, *more)


def test_a_model_is_refused():
    with pytest.raises(InvalidInputError, match="takes no model; got 'gpt2'"):
        reproduce("pde_view", "gpt2")


def test_texts_of_a_file_are_split_as_it_says(tmp_path):
    rows = [
        {"text": f"{word} the cat, {k} sat On " * 4, "label": word, "split": part}
        for k in range(20)
        for word, part in (("dog", "train"), ("bird", "train"), ("dog", "test"), ("bird", "test"))
    ]
    rows.append({"text": "too short", "label": "dog"})
    (tmp_path / "texts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    given = settings(f"field.text={tmp_path / 'texts.jsonl'}", "tasks=[texts]")
    made = task("texts", given)
    assert made.sizes == (7, 12, 2)
    assert made.inputs.shape == (40, 12)
    assert len(made.test_inputs) == 16
    assert made.inputs.min() >= 1
    first = {tuple(row.tolist()): int(y) for row, y in zip(made.inputs, made.labels, strict=True)}
    assert len(first) == 2


def test_line_without_label_is_refused(tmp_path):
    (tmp_path / "texts.jsonl").write_text('{"text": "a b"}')
    given = settings(f"field.text={tmp_path / 'texts.jsonl'}", "tasks=[texts]")
    with pytest.raises(InvalidInputError, match=r'line 1 of .* "text" and "label"'):
        task("texts", given)


def test_settings_have_the_arms_of_the_study():
    field = PdeView.model_fields["arms"].annotation
    assert set(field.__args__[0].__args__) == set(ARMS)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_recorded_steps_are_the_steps():
    made = [nn.Linear(8, 4).cuda() for _ in range(2)]
    made[1].load_state_dict(made[0].state_dict())
    x, y = torch.randn(64, 8).cuda(), torch.randint(4, (64,)).cuda()
    for model, graph in zip(made, (False, True), strict=True):
        Descent(
            model, lambda step, model=model: nn.functional.cross_entropy(model(x), y),
            schedule(20, 0.05), [True, True],
        ).run(graph=graph)  # fmt: skip
    torch.testing.assert_close(made[0].weight, made[1].weight)
