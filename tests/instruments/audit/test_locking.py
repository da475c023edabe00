"""P2: noise is not locking, planted locking is, and what cannot be judged says why."""

import numpy as np
import pandas as pd
import pytest
import torch
from tests import networks as models
from tests.instruments.prompts import TEXTS

import flowscope as fs
from flowscope.instruments.audit.locking import STAGE, TABLES
from flowscope.instruments.audit.locking.judge import _places, judge_locking
from flowscope.instruments.audit.locking.measure import _first_of_equals
from flowscope.instruments.audit.locking.tables import locking_table, slope_tables, with_bound
from flowscope.lab import Claim
from flowscope.lab.engine import judged, rejudge
from flowscope.lab.result import open_run
from flowscope.lab.view import Records
from flowscope.models.prompts import packaged_texts
from flowscope.nets import bundled_path
from flowscope.probes import drawn_donors
from flowscope.simplex import transplanted_steps

CLAIM = Claim(name="C", says="what is judged", asks="Is it so?")
PROMPTS, TOKENS, LAYERS, OUTCOMES = 16, 16, 3, 40


def planted(exponent, *, seed=0, prompts=PROMPTS, most=10.0, least=0.0, scale=1.0):
    """Steps of noise times scale·δ^exponent; the top outcome leads by least to most."""
    rng = np.random.default_rng(seed)
    tables = []
    for number in range(prompts):
        lead = rng.uniform(least, most, (TOKENS, 1)) * (np.arange(OUTCOMES) == 0)
        z = torch.from_numpy(rng.normal(size=(TOKENS, OUTCOMES)) + lead)
        columns = []
        for _ in range(LAYERS):
            p = z.softmax(-1)
            tail = p.scatter(-1, p.argmax(-1, keepdim=True), 0.0).sum(-1, keepdim=True)
            after = z + scale * tail**exponent * torch.from_numpy(rng.normal(size=z.shape))
            columns.append(vars(transplanted_steps(z, after, drawn_donors(TOKENS, rng))))
            z = after
        table = {n: torch.stack([c[n] for c in columns], 1).numpy() for n in columns[0]}
        tables.append({**table, "prompt": np.full(TOKENS, number)})
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def verdict_of(arrays, *, exceeded=0):
    slopes, prompts = slope_tables(arrays, seed=0)
    slopes = slopes.assign(steps=len(arrays["prompt"]), exceeded=0)
    slopes.loc[0, "exceeded"] = exceeded
    return judge_locking(slopes, prompts, claim=CLAIM, seed=0)


@pytest.mark.parametrize(
    ("exponent", "outcome", "words"),
    [(0.3, "holds", "less far"), (0.1, "holds", "less far"), (-0.1, "fails", "further")],
)
def test_steps_scaled_by_tail_mass_are_found_with_their_sign(exponent, outcome, words):
    verdict = verdict_of(planted(exponent, scale=0.1))
    assert verdict.outcome == outcome
    assert verdict.effect == pytest.approx(exponent, abs=0.05)
    assert verdict.interval.low < verdict.effect < verdict.interval.high
    assert words in verdict.because
    assert verdict.strength == ("clear" if exponent == 0.3 else "weak")


def test_steps_that_do_not_know_their_token_are_never_locking():
    outcomes = [verdict_of(planted(0.0, seed=seed)).outcome for seed in range(10)]
    assert "holds" not in outcomes
    assert outcomes.count("abstains") >= 9


@pytest.mark.parametrize(("least", "most"), [(0.0, 0.0), (9.0, 12.0)])
def test_tokens_that_are_all_decided_or_none_say_nothing(least, most):
    verdict = verdict_of(planted(0.3, least=least, most=most, scale=0.1))
    assert verdict.outcome == "uninformative"
    assert "tokens are all decided or none" in verdict.because
    assert verdict.statistic.status == "abstained"


def test_tokens_that_are_equally_decided_say_nothing():
    arrays = planted(0.3)
    arrays["tail_mass"] = np.clip(arrays["tail_mass"], 0.4, 0.6)
    verdict = verdict_of(arrays)
    assert verdict.outcome == "uninformative"
    assert "equally decided" in verdict.because


def test_fewer_than_eight_prompts_decide_nothing_and_say_how_many_are_needed():
    verdict = verdict_of(planted(0.3, prompts=7))
    assert verdict.outcome == "abstains"
    assert "at least 8 different prompts with at least 3 tokens are needed; this run has 7" in (
        verdict.because
    )
    assert verdict_of(planted(0.3, prompts=1)).outcome == "abstains"


def test_a_step_beyond_the_theorem_is_a_defect_and_no_finding():
    verdict = verdict_of(planted(0.3), exceeded=2)
    assert verdict.outcome == "abstains"
    assert "2 of 768 steps exceed the exact bound" in verdict.because
    assert "the numbers are unreliable" in verdict.because


def test_contributions_add_up_to_the_slope_of_the_mixed_layers_only():
    arrays = planted(0.3)
    arrays["tail_mass"][:, 0] = 0.9  # a layer at which no token is decided
    slopes, prompts = slope_tables(arrays, seed=0)
    assert slopes["mixed"].tolist() == [False, True, True]
    assert np.isnan(slopes["contribution"][0])
    common = prompts["products"].sum() / prompts["squares"].sum()
    assert slopes["contribution"].sum() == pytest.approx(common, rel=1e-12)
    inside = slopes["slope_low"] < slopes["slope"], slopes["slope"] < slopes["slope_high"]
    assert all(side[1:].all() for side in inside)
    assert (prompts["steps"] == 2 * TOKENS).all()
    assert (prompts["freedom"] == 2 * (TOKENS - 1)).all()


def test_steps_beyond_the_bound_are_counted_by_layer():
    tail, oscillation = np.full((5, 3), 0.01), np.full((5, 2), 0.5)
    moved = np.array([[1e-3, 0.4]] * 5)
    depth = {"tail_mass": tail, "oscillation": oscillation, "total_variation": moved}
    checked = with_bound(pd.DataFrame({"layer": [1, 2]}), depth)
    assert checked["exceeded"].tolist() == [0, 5]
    assert checked["steps"].tolist() == [5, 5]
    assert locking_table(depth)["n"].sum() == 10


def test_a_repeated_prompt_counts_once():
    a, b = np.arange(4), np.arange(5)
    assert _first_of_equals([a, b, a.copy(), b, np.arange(4) + 1]) == [0, 1, 4]


@pytest.mark.parametrize(("layers", "words"), [([3], "layer 3"), ([1, 2, 3, 7], "layers 1–3, 7")])
def test_layers_in_words(layers, words):
    assert _places(layers) == words


@pytest.fixture(scope="module")
def bundled(tmp_path_factory):
    texts = [text for text in packaged_texts() if len(text) > 200][:8]
    folder = tmp_path_factory.mktemp("p2") / "run"
    return fs.audit(texts=texts, only=("P2",), tokens=24, control_prompts=1, out=folder)


def test_the_bundled_model_is_measured_and_its_tables_are_as_declared(bundled):
    verdict = next(v for v in bundled.verdicts if v.name == "P2")
    assert verdict.statistic.n == 8
    assert verdict.effect < 0  # early layers move decided tokens more
    for name, table in TABLES.items():
        assert list(bundled.run.read_table(name).columns) == list(table.schema), name
    slopes = bundled.run.read_table("locking_slopes")
    assert slopes["layer"].tolist() == list(range(1, 15))
    assert slopes["exceeded"].sum() == 0


def test_the_folder_alone_gives_the_same_verdict(bundled):
    before = next(v for v in bundled.verdicts if v.name == "P2")
    (again,) = judged(STAGE, Records(run=bundled.run))
    assert (again.outcome, again.effect, again.because) == (
        before.outcome,
        before.effect,
        before.because,
    )
    slopes = bundled.run.read_table("locking_slopes")
    bundled.run.write_table("locking_slopes", slopes.assign(exceeded=1))
    try:
        result = open_run(bundled.run.folder)
        rejudge(result)
        changed = next(v for v in open_run(bundled.run.folder).verdicts if v.name == "P2")
        assert "the numbers are unreliable" in changed.because
    finally:
        bundled.run.write_table("locking_slopes", slopes)
        rejudge(open_run(bundled.run.folder))


def test_the_page_shows_the_slopes(bundled):
    page = bundled.report().read_text(encoding="utf-8")
    assert 'id="plot-locking_slope"' in page
    assert "tables/locking_slopes.csv" in page
    assert bundled.plot("locking_slope", backend="matplotlib").axes
    drawn = bundled.plot("locking_slope").data[0]
    slopes = bundled.run.read_table("locking_slopes")
    np.testing.assert_array_equal(drawn.y, slopes["slope"])


def _locking(source, texts=None, **settings):
    result = fs.audit(source, texts, only=("P2",), resamples=10, **settings)
    result.report()
    return next(v for v in result.verdicts if v.name == "P2")


def test_identical_prompts_are_one(tmp_path):
    verdict = _locking(bundled_path(), [TEXTS[0]] * 9, out=tmp_path / "run")
    assert verdict.outcome in ("abstains", "uninformative")
    assert "this run has" in verdict.because
    assert verdict.statistic.n <= 1


@pytest.mark.parametrize(
    ("tokens", "reason"),
    [(0, "switched off"), (2, "locking_tokens is 2")],
)
def test_too_few_tokens_asked_for_abstains_in_words(tokens, reason, tokenizer, tmp_path):
    verdict = _locking(
        models.llama()[0], ["it was the best of times"], tokenizer=tokenizer,
        locking_tokens=tokens, out=tmp_path / "run",
    )  # fmt: skip
    assert verdict.outcome == "abstains"
    assert reason in verdict.because


def test_prompts_of_two_tokens_abstain_in_words(tokenizer, tmp_path):
    texts = ["it was", "best of"]
    verdict = _locking(models.llama()[0], texts, tokenizer=tokenizer, out=tmp_path / "run")
    assert "no prompt has 3 tokens" in verdict.because


def test_images_are_pooled_and_hidden_states_have_no_outcomes(tokenizer, tmp_path):
    model, batch = models.vit()
    pooled = _locking(model, batch["pixel_values"], out=tmp_path / "vit")
    assert "pools its positions" in pooled.because
    from transformers import BertConfig, BertModel

    config = BertConfig(vocab_size=61, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
    hidden = _locking(
        BertModel(config).eval(), ["it was the best"], tokenizer=tokenizer, out=tmp_path / "bert"
    )
    assert "last_hidden_state" in hidden.because
    assert {pooled.outcome, hidden.outcome} == {"abstains"}


def test_random_weights_are_uninformative(tmp_path):
    from flowscope.models.twin import fresh_twin
    from flowscope.nets import bundled_path

    loaded = fs.load(bundled_path())
    texts = [text for text in packaged_texts() if len(text) > 100][:8]
    verdict = _locking(
        fresh_twin(loaded.model, 0), texts, tokenizer=loaded.tokenizer, tokens=16,
        controls=False, out=tmp_path / "run",
    )  # fmt: skip
    assert verdict.outcome == "uninformative"
