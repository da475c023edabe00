"""The making of the bundled model, on texts and sizes that take seconds."""

import json
import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from studies.training import corpus, train
from studies.training.depth import locking_depth, mobility_size, normalised_variation
from studies.training.evaluation import held_out_losses, total, unigram_scores, windows
from studies.training.schedule import Schedule
from studies.training.sources import SOURCES, Document

import flowscope as fs

VERSES = [
    f"And it came to pass on day {i}, that they went to the city of {i * 7}." for i in range(60)
]
TOKENIZER = corpus.trained_tokenizer(VERSES, 300)


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    folder = tmp_path_factory.mktemp("raw")
    rows = [
        {"question": f"{name} has {n} figs and eats {n // 2}. How many are left?",
         "answer": f"{n} - {n // 2} = <<{n}-{n // 2}={n - n // 2}>>{n - n // 2}\n#### {n - n // 2}"}
        for name in ("Ann", "Bob", "Cid", "Dan", "Eve", "Fay", "Gus", "Hal") for n in range(2, 8)
    ]  # fmt: skip
    (folder / "gsm8k.jsonl").write_text("\n".join(map(json.dumps, rows)))
    verses = [f"Ge{i // 4 + 1}:{i % 4 + 1} {verse}" for i, verse in enumerate(VERSES)]
    (folder / "kjv.txt").write_text("\n".join(verses))
    return {"gsm8k": folder / "gsm8k.jsonl", "kjv": folder / "kjv.txt"}


@pytest.fixture(scope="module")
def built(raw, tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    corpus.build(raw, folder, 320)
    return folder


@given(st.text())
def test_any_text_comes_back_from_its_tokens(text):
    assert TOKENIZER.decode(TOKENIZER.encode(text).ids, skip_special_tokens=False) == text


@pytest.mark.parametrize("name", ["gsm8k", "kjv"])
def test_no_group_is_on_both_sides(raw, name):
    documents = list(SOURCES[name].documents(raw[name]))
    train_texts, held = corpus.split(documents)
    group = {d.text: d.group for d in documents}
    assert held
    assert len(train_texts) + len(held) == len(documents)
    assert not {group[t] for t in train_texts} & {group[t] for t in held}


def test_problems_that_differ_in_numbers_stay_together(raw):
    _, held = corpus.split(list(SOURCES["gsm8k"].documents(raw["gsm8k"])))
    assert len(held) == 6  # one name, all six numbers
    assert len({text.split()[1] for text in held}) == 1
    assert "<<" not in held[0]


def test_order_of_documents_does_not_move_the_split():
    documents = [Document(str(i), f"text {i}") for i in range(100)]
    assert set(corpus.split(documents)[1]) == set(corpus.split(documents[::-1])[1])


def test_held_out_text_is_not_in_the_training_shard(built):
    shards = np.load(built / "tokens.npz")
    tokenizer = corpus.Tokenizer.from_file(str(built / "tokenizer.json"))
    for line in (built / "heldout.jsonl").read_text().splitlines():
        row = json.loads(line)
        seen = tokenizer.decode(shards[f"train_{row['source']}"], skip_special_tokens=False)
        kept = tokenizer.decode(shards[f"heldout_{row['source']}"], skip_special_tokens=False)
        assert row["text"] not in seen
        assert row["text"] in kept


def test_the_same_raw_files_give_the_same_folder(raw, built, tmp_path):
    corpus.build(raw, tmp_path, 320)
    for file in built.iterdir():
        assert (tmp_path / file.name).read_bytes() == file.read_bytes()


def test_windows_predict_every_token_once():
    tokens = np.arange(1, 12, dtype=np.uint16)
    inputs, targets = windows(tokens, 4, 0)
    assert targets[targets >= 0].tolist() == tokens.tolist()
    assert inputs.flatten()[:11].tolist() == [0, *tokens[:-1].tolist()]


def test_unigram_loss_is_the_entropy_of_its_own_counts():
    tokens = np.array([0, 0, 0, 1], dtype=np.uint16)  # with one added: 4/6 and 2/6
    losses = held_out_losses(unigram_scores([tokens], 2), {"a": windows(tokens, 3, 0)})
    assert total(losses).nats == pytest.approx(-3 * math.log(4 / 6) - math.log(2 / 6))


def test_depth_figures_on_a_path_by_hand():
    a, b, c = torch.tensor([[1.0, -1.0]]), torch.tensor([[-1.0, 1.0]]), torch.tensor([[-2.0, 2.0]])
    torch.testing.assert_close(normalised_variation([a, b, c]), torch.tensor([(8 + 2) / (2 + 8)]))
    assert locking_depth([a, b, c]).tolist() == [1]
    assert locking_depth([b, a, b]).tolist() == [2]
    assert locking_depth([a, a, a]).tolist() == [0]


def test_mobility_size_is_the_norm_of_the_matrix():
    p = torch.softmax(torch.randn(3, 7, dtype=torch.float64), -1)
    matrix = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    torch.testing.assert_close(mobility_size(p), matrix.flatten(1).norm(dim=1))
    near_vertex = mobility_size(torch.tensor([1.0, 1e-9]))
    torch.testing.assert_close(near_vertex, torch.tensor(2e-9, dtype=torch.float64))


def test_rate_rises_stays_and_falls_to_zero():
    schedule = Schedule(1.0, 10, 0.4, 100, 1e9, 0)
    rates = [schedule.rate(step, 0.01 * step) for step in range(101)]
    assert rates[:10] == pytest.approx([(i + 1) / 10 for i in range(10)])
    assert set(rates[10:60]) == {1.0}
    assert rates[100] == 0.0
    assert all(x >= y for x, y in pairwise(rates[60:]))


def test_a_short_clock_shortens_the_run():
    schedule = Schedule(1.0, 10, 0.4, 10**6, 100.0, 0)
    rates = [schedule.rate(step, 1.0 * step) for step in range(100)]
    assert schedule.falling_since == 60
    assert rates[-1] < 0.02
    assert schedule.over(100, 100.0)


def test_a_small_model_learns_and_its_folder_loads(built, tmp_path):
    arguments = (
        f"--data {built} --out {tmp_path} --device cpu --no-compile --steps 30 --layers 2 "
        "--width 32 --heads 4 --kv-heads 2 --feed-forward 48 --context 32 --batch 8 --warmup 5 "
        "--every 10 --moments 5 --watched-rows 2 --watched-length 16 --memory 0.8 --rate 0.01"
    )
    record = train.main(arguments.split())
    assert record["heldout"]["all"]["model"]["per_token"] < (
        0.5 * record["heldout"]["all"]["random_weights"]["per_token"]
    )
    assert len((tmp_path / "training_curve.csv").read_text().splitlines()) == 6
    assert len(list(tmp_path.iterdir())) <= 7
    assert str(tmp_path) not in (tmp_path / "training.json").read_text()
    loaded = fs.load(tmp_path)
    assert loaded.kind == "causal_lm"
    assert loaded.model.dtype == torch.bfloat16
    text = "naïve 雪 \u200d🙂 42\n"
    ids = loaded.tokenizer(text)["input_ids"]
    assert loaded.tokenizer.decode(ids) == text
    assert loaded.tokenizer.eos_token_id == loaded.model.config.eos_token_id == 0
    assert loaded.tokenizer.pad_token_id == loaded.model.config.pad_token_id == 1
    assert torch.isfinite(loaded.model(torch.tensor([ids])).logits).all()
