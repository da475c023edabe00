"""The study of source 003: its texts, its members, the verdict L4, resuming and its rows."""

import copy
import json
import math
import random

import numpy as np
import pytest
import torch
from tests import networks
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from flowscope.instruments.latent.stable_alignment.comparison import scoring
from flowscope.instruments.latent.stable_alignment.comparison.judge import (
    DIFFERENT,
    judge_losses,
)
from flowscope.instruments.latent.stable_alignment.comparison.ways import blocks_of
from flowscope.instruments.latent.stable_alignment.generated import GENERATORS
from flowscope.instruments.latent.stable_alignment.members import measure as tuning
from flowscope.instruments.latent.stable_alignment.names import DOMAINS, LAYER_SETS, PLAIN
from flowscope.instruments.latent.stable_alignment.turned import turned_twin
from flowscope.lab.result import open_run
from flowscope.lab.study import reproduce
from flowscope.levers import consensus
from flowscope.models.prompts import Batch
from flowscope.nets import bundled_path
from flowscope.records import Unavailable

SIZES = [
    "steps=4", "minibatch=3", "examples=12", "tested=8", "transported=1", "strengths=[0.5, 1.0]",
    "learning_rate=0.03", "latent.prompts=20", "latent.tokens=14", "latent.controls=false",
    "latent.halves=8", "latent.points=200", "latent.surrogates=1",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small Llama with random weights that knows the tokens of the bundled model."""
    return saved(tmp_path_factory.mktemp("llama"), 0)


def saved(folder, seed):
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=4096, hidden_size=16, intermediate_size=24, num_hidden_layers=3,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
        initializer_range=0.3,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(bundled_path()).save_pretrained(folder)
    return folder


def run(folder, out, *more):
    return reproduce(
        "stable_alignment", str(folder), progress=False, overrides=[*SIZES, *more], out=str(out)
    )


@pytest.fixture(scope="module")
def finished(folder, tmp_path_factory):
    """A tiny run of the study."""
    return run(folder, tmp_path_factory.mktemp("study"))


@pytest.mark.parametrize("name", GENERATORS)
def test_generated_texts_are_those_of_their_seed_and_differ_from_one_another(name):
    make = GENERATORS[name]
    texts = [make(random.Random(seed)) for seed in range(50)]
    assert texts == [make(random.Random(seed)) for seed in range(50)]
    assert len(set(texts)) == 50


def test_accounts_are_kept_right():
    words = GENERATORS["first"](random.Random(3)).replace(".", "").split()
    counts = {}
    for who, verb, number, thing in zip(words, words[1:], words[2:], words[3:], strict=False):
        if verb not in ("has", "buys", "gives"):
            continue
        change = {"has": 0, "buys": int(number), "gives": -int(number)}[verb]
        key = who, thing
        said_now = words[words.index(who) - 1] == "Now"  # a first "has" may begin a new account
        if verb == "has" and (key not in counts or not said_now):
            counts[key] = int(number)
        counts[key] = counts.get(key, 0) + change
        if verb == "has":
            assert counts[key] == int(number)


def test_layer_sets_are_thirds_of_the_depth():
    for depth in (1, 2, 3, 5, 14):
        sets = {name: list(blocks_of(name, depth)) for name in (*LAYER_SETS, "one early")}
        assert sets["all"] == list(range(depth))
        assert sets["last"] == [depth - 1]
        assert sets["one early"] == sets["early"][-1:]
        assert all(sets[name] for name in ("early", "late"))
        assert all(0 <= block < depth for name in ("early", "late") for block in sets[name])
    assert list(blocks_of("middle", 14)) == [4, 5, 6, 7, 8, 9]


@torch.no_grad()
def test_a_turned_twin_computes_the_same_with_turned_states():
    model, batch = networks.llama()
    model = model.double()
    twin = turned_twin(model, seed=0)
    torch.testing.assert_close(
        twin(**batch).logits, model(**batch).logits, rtol=0, atol=1e-6
    )  # RMSNorm in float32
    states = [m(**batch, output_hidden_states=True).hidden_states[1] for m in (model, twin)]
    assert (states[0] - states[1]).norm() > 0.5 * states[0].norm()
    torch.testing.assert_close(*(x.norm(dim=-1) for x in states), rtol=1e-6, atol=1e-6)
    refused = turned_twin(networks.gpt2()[0], seed=0)
    assert isinstance(refused, Unavailable)
    assert "GPT2LMHeadModel cannot be turned" in refused.reason


@torch.no_grad()
def test_consensus_with_the_turned_twin_leaves_the_output_only_where_it_is_aligned():
    """Width 16, so that 64 tokens are enough; in the precision of the weights."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=300, hidden_size=16, intermediate_size=24, num_hidden_layers=3,
        num_attention_heads=2, initializer_range=0.5,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    twin = turned_twin(model, seed=1)
    ids = torch.randint(300, (4, 16), generator=torch.Generator().manual_seed(2))
    law = model(input_ids=ids).logits.softmax(-1)
    gaps = {}
    for align in ("none", "procrustes"):
        with consensus([model, twin], align=align) as lever:
            laws = [output.logits.softmax(-1) for output in lever(input_ids=ids)]
        gaps[align] = max(float(0.5 * (each - law).abs().sum(-1).max()) for each in laws)
    assert gaps["procrustes"] < 1e-5
    assert gaps["none"] > 0.05


def test_scores_are_those_of_two_known_laws():
    p, q = np.array([0.5, 0.25, 0.25]), np.array([0.2, 0.2, 0.6])
    ids = torch.tensor([[0, 2, 1, 0]])
    logits = [torch.tensor(np.log(law)).expand(1, 4, 3) for law in (p, q)]
    mask = torch.tensor([[True, True, True, False]])
    batch = Batch(inputs={"input_ids": ids}, prompts=np.array([0]), mask=mask)
    sums = scoring._sums(logits, batch)[:, 0].numpy()
    mixed, geometric = (p + q) / 2, np.sqrt(p * q) / np.sqrt(p * q).sum()

    def entropy(law):
        return -(law * np.log(law)).sum()

    targets = [2, 1]  # the last one is padding
    expected = [-np.log(law[targets]).sum() for law in (p, q, mixed, geometric)]
    expected += [2 * (entropy(mixed) - (entropy(p) + entropy(q)) / 2), 2]
    np.testing.assert_allclose(sums, expected, rtol=1e-6)


def drawn(rng, gain, *, texts=24, spread=0.05):
    """Losses in which the best of three consensuses saves ``gain`` nats beside every way."""
    losses = {}
    for domain in DOMAINS:
        base = rng.normal(3, 0.4, texts)
        plain = {way: base + rng.normal(0, spread, texts) for way in PLAIN}
        agreed = {
            (layers, 1.0): base - (gain if layers == "early" else gain - 0.2)
            + rng.normal(0, spread, texts)
            for layers in ("all", "early", "late")
        }  # fmt: skip
        losses[domain] = plain, agreed
    return losses


def test_l4_holds_on_a_planted_consensus_and_fails_on_a_worse_one():
    rng = np.random.default_rng(0)
    good = judge_losses(drawn(rng, 0.15), divergence=0.1, seed=0)
    assert (good.outcome, good.strength) == ("holds", "strong")
    assert "blocks: early" in good.because
    bad = judge_losses(drawn(rng, -0.15), divergence=0.1, seed=0)
    assert bad.outcome == "fails"


def test_l4_holds_only_if_it_beats_every_way_on_every_kind_of_text():
    rng = np.random.default_rng(1)
    losses = drawn(rng, 0.15)
    plain, agreed = losses["general"]
    worse = {**plain, "probability mean": plain["probability mean"] - 0.4}
    judged = judge_losses({**losses, "general": (worse, agreed)}, divergence=0.1, seed=0)
    assert judged.outcome == "fails"
    assert "probability mean on prompts of the run" in judged.because


def test_l4_seldom_holds_or_fails_on_noise():
    rng = np.random.default_rng(2)
    outcomes = []
    for seed in range(60):
        losses = {}
        for domain in DOMAINS:
            base = rng.normal(3, 0.4, 16)
            plain = {way: base + rng.normal(0, 0.1, 16) for way in PLAIN}
            agreed = {(f"set {k}", 1.0): base + rng.normal(0, 0.1, 16) for k in range(6)}
            losses[domain] = plain, agreed
        outcomes.append(judge_losses(losses, divergence=0.1, seed=seed).outcome)
    assert outcomes.count("holds") <= 1
    assert outcomes.count("abstains") >= 54


def test_l4_is_uninformative_where_members_hardly_differ_and_abstains_on_few_texts():
    rng = np.random.default_rng(3)
    same = judge_losses(drawn(rng, 0.15), divergence=DIFFERENT / 2, seed=0)
    assert same.outcome == "uninformative"
    few = judge_losses(drawn(rng, 0.15, texts=7), divergence=0.1, seed=0)
    assert few.outcome == "abstains"
    assert "at least 8 texts of each kind" in few.because


def test_the_study_says_a_row_per_claim_and_keeps_its_tables(finished):
    claims = finished.claims.set_index("item")
    assert len(claims) == 13
    assert set(finished.run.tables()) >= {
        "members", "consensus", "consensus_prompts", "turned_twin", "one_sphere",
    }  # fmt: skip
    assert claims.loc["isomorphic spaces", "agrees"] in ("no", "cannot be told")
    verdict = {v.name: v for v in finished.result.verdicts}["L4"]
    assert verdict.outcome in ("holds", "fails", "abstains")
    members = finished.run.read_table("members").set_index("member")
    assert members.loc["turned twin", "moved"] != members.loc["first child", "moved"]
    assert (members["loss_end"] < members["loss_start"])[["first child", "second child"]].all()


def test_numbers_of_the_study_belong_together(finished):
    table = finished.run.read_table("consensus").fillna({"layers": ""})
    keys = ["members", "method", "domain"]
    whole = table[table["layers"] == ""].set_index(keys)
    for domain in DOMAINS:
        at = {m: whole.loc[("children", m, domain)] for m in whole.loc["children"].index.levels[0]
              if ("children", m, domain) in whole.index}  # fmt: skip
        ones = at["first member"]["loss"], at["second member"]["loss"]
        assert at["members apart"]["loss"] == pytest.approx(np.mean(ones))
        assert at["probability mean"]["loss"] == pytest.approx(at["members apart"]["loss_mixed"])
        assert at["probability mean"]["loss"] <= at["members apart"]["loss"] + 1e-9  # convexity
        assert at["members apart"]["divergence"] > 1e-4
        full = table[(table["domain"] == domain) & (table["layers"] == "all")]
        full = full[(full["members"] == "children") & (full["strength"] == 1)]
        assert (full["divergence"] < at["members apart"]["divergence"]).all()
    twins = finished.run.read_table("turned_twin").set_index("align")
    assert twins.loc["apart", "total_variation"] < 1e-5
    assert twins.loc["procrustes", "total_variation"] < 1e-5
    assert twins.loc["none", "total_variation"] > 0.05


def test_a_run_that_was_killed_goes_on_without_tuning_again(
    finished, folder, tmp_path, monkeypatch
):
    calls, tuned = [], tuning._tuned
    monkeypatch.setattr(tuning, "_tuned", lambda *given: calls.append(1) or tuned(*given))
    score, scored = [], scoring._sums

    def killed(*given):
        score.append(1)
        if len(score) == 12:
            raise KeyboardInterrupt
        return scored(*given)

    monkeypatch.setattr(scoring, "_sums", killed)
    with pytest.raises(KeyboardInterrupt):
        run(folder, tmp_path)
    assert len(calls) == 2
    monkeypatch.setattr(scoring, "_sums", scored)
    again = run(folder, tmp_path)
    assert len(calls) == 2
    for name in ("members", "consensus_prompts", "turned_twin"):
        left, right = (one.run.read_table(name) for one in (again, finished))
        assert left.equals(right), name


def test_the_study_is_judged_again_from_its_folder(finished, tmp_path):
    import shutil

    result = open_run(shutil.copytree(finished.run.folder, tmp_path / "copy"))
    before = {v.name: v.because for v in result.verdicts}
    result.judge()
    assert {v.name: v.because for v in result.verdicts} == before
    page = result.report().read_text(encoding="utf-8")
    assert "Do two models agree, and is it worth it?" in page
    assert "L4" in page
    assert "Consensus" in page


def test_another_seed_is_compared_and_texts_are_taken_from_files(folder, tmp_path):
    other = saved(tmp_path / "other", 1)
    texts = tmp_path / "first.jsonl"
    lines = [
        f"line {k} of this text is about the {'cat' if k % 3 else 'dog'} {k * k}" for k in range(30)
    ]
    texts.write_text("\n".join(json.dumps({"text": line}) for line in lines))
    found = run(folder, tmp_path, f"other={other}", f"first={texts}", "transported=0")
    table = found.run.read_table("consensus").fillna({"layers": ""})
    rows = table[(table["members"] == "other seed") & (table["layers"] == "all")]
    assert set(rows["align"]) == {"none", "procrustes"}
    assert "texts of the second child" not in str(found.claims.loc[0, "measured"])
    clouds = found.claims.set_index("item").loc["barycenter of clouds"]
    assert clouds["agrees"] == "not measured"
    assert math.isfinite(table["loss"].sum())


def test_members_of_the_study_are_left_alone(folder):
    torch.manual_seed(0)
    model = LlamaForCausalLM.from_pretrained(folder).eval()
    before = copy.deepcopy(model.state_dict())
    turned_twin(model, seed=0)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
