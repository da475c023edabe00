"""Runs over parts of the prompts become the run over all of them, byte for byte."""

from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowscope.errors import InvalidInputError
from flowscope.lab import engine, registry
from flowscope.lab.engines.merging import merged
from flowscope.lab.engines.plan import read_plan
from flowscope.lab.running import writing
from flowscope.probes import DepthProbe
from flowscope.probes.heads.curvature import CurvatureProbe
from flowscope.records import Run

TINY = {
    "audit": {
        "tokens": 12, "batch": 2, "resamples": 10, "control_prompts": 1, "controls": False,
        "flow_positions": 2, "flow_close": 1, "evi_positions": 0,
    },
    "heads": {
        "tokens": 10, "batch": 2, "resamples": 10, "control_prompts": 1, "controls": True,
        "twins": 3, "permutations": 3, "dials": False,
    },
}  # fmt: skip
ONLY = {"audit": "P2", "heads": "M1"}
ALL = 6


def measured(name, folder, **changed):
    one = registry.instrument(name)
    config = one.config.resolved({**TINY[name], **changed})
    return engine.run(one, config, folder=folder, only=ONLY[name]).run


def shards(folder):
    return {path.name: path.read_bytes() for path in (folder / "shards").iterdir()}


def tables(folder):
    found = {path.name: path.read_bytes() for path in (folder / "tables").iterdir()}
    assert found
    return found


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """Three runs over parts of six prompts, and one run over all, by instrument."""

    @cache
    def made(name):
        home = tmp_path_factory.mktemp(name)
        cuts = ((0, 2), (2, 2), (4, 2)) if name == "audit" else ((0, 2), (2, 4))
        some = [measured(name, home / f"{a}", skip=a, prompts=n).folder for a, n in cuts]
        return some, measured(name, home / "all", prompts=ALL).folder

    return made


@pytest.mark.parametrize("name", TINY)
def test_the_merged_run_writes_the_tables_of_one_run_over_all_prompts(name, parts, tmp_path):
    some, whole = parts(name)
    union = merged(some[::-1], tmp_path / "c")
    assert (union.prompts, union.run) == (ALL, tmp_path / "c")
    copied = shards(union.run)
    assert copied
    assert copied.items() <= shards(whole).items()
    assert union.instrument == name
    config = read_plan(union.run).config
    engine.run(registry.instrument(name), config, folder=union.run, only=ONLY[name])
    assert shards(union.run) == shards(whole)
    assert tables(union.run) == tables(whole)


def test_merging_is_associative_and_commutative(parts, tmp_path):
    (a, b, c), _ = parts("audit")
    left = merged([merged([a, b], tmp_path / "ab").run, c], tmp_path / "ab c")
    right = merged([merged([c, b], tmp_path / "cb").run, a], tmp_path / "a bc")
    assert shards(left.run) == shards(right.run) == shards(merged([b, c, a], tmp_path / "x").run)
    assert merged([b, c, a], tmp_path / "x").shards == left.shards  # again: nothing changes


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"skip": 1, "prompts": 2}, "parts overlap: .* ends before prompt 2 .* at prompt 1"),
        ({"skip": 3, "prompts": 2}, "parts leave prompts out: .* before prompt 2 .* at prompt 3"),
        ({"skip": 2, "prompts": 2, "seed": 3}, "of another run .*: seed is 3 and 0"),
        ({"skip": 2, "prompts": 2, "tokens": 11}, "tokens is 11 and 12"),
        ({"skip": 2, "prompts": 2, "batch": 1}, "batch is 1 and 2"),
    ],
)
def test_parts_that_do_not_fit_are_refused(changed, words, parts, tmp_path):
    (first, *_), _ = parts("audit")
    other = measured("audit", tmp_path / "other", **changed)
    with pytest.raises(InvalidInputError, match=words):
        merged([first, other.folder], tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_parts_that_are_not_whole_batches_are_refused(parts, tmp_path):
    odd = measured("audit", tmp_path / "odd", prompts=3)
    rest = measured("audit", tmp_path / "rest", skip=3, prompts=2)
    with pytest.raises(InvalidInputError, match=r"3 prompts, which are not whole batches of 2"):
        merged([odd.folder, rest.folder], tmp_path / "c")
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"weight_hash": "0" * 64}, r"is not the one that .* measured: its weights have changed"),
        ({"hashes": {"texts": "0" * 64}}, r"text is not the one that .* read: it has changed"),
    ],
)
def test_a_model_or_text_that_has_changed_since_is_refused(changed, words, parts, monkeypatch,
                                                           tmp_path):  # fmt: skip
    (a, b, _), _ = parts("audit")
    opened = engine.opened_bench

    @contextmanager
    def later(*given):
        with opened(*given) as (bench, plan):
            bench.subject = replace(bench.subject, **changed)
            yield bench, plan

    monkeypatch.setattr(engine, "opened_bench", later)
    with pytest.raises(InvalidInputError, match=words):
        merged([a, b], tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_parts_of_other_texts_versions_or_instruments_are_refused(parts, monkeypatch, tmp_path):
    (first, *_), _ = parts("audit")
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat and the dog sat on the log . " * 30, encoding="utf-8")
    strange = measured("audit", tmp_path / "s", skip=2, prompts=2, text=str(text))
    with pytest.raises(InvalidInputError, match="read other texts"):
        merged([first, strange.folder], tmp_path / "c")
    (other, *_), _ = parts("heads")
    with pytest.raises(InvalidInputError, match="instrument is heads and audit"):
        merged([first, other], tmp_path / "c")
    with pytest.raises(InvalidInputError, match="two run folders or more; got one"):
        merged([first], tmp_path / "c")
    with monkeypatch.context() as patch:
        patch.setattr(writing, "library_versions", lambda: {"torch": "99"})
        later = measured("audit", tmp_path / "later", skip=2, prompts=2)
    with pytest.raises(InvalidInputError, match=r"versions\.torch is 99"):
        merged([first, later.folder], tmp_path / "c")


def test_a_part_that_skips_all_prompts_is_refused(tmp_path):
    text = tmp_path / "text.jsonl"
    text.write_text('{"text": "the cat sat"}\n{"text": "the dog sat"}\n', encoding="utf-8")
    with pytest.raises(InvalidInputError, match="has 2 prompts, and the first 5 are left out"):
        measured("audit", tmp_path / "run", skip=5, prompts=2, text=str(text))


# ---- probes


def _pieces(folder, prefix=""):
    """Arrays of every batch of a run."""
    run = Run.open(folder)
    return [
        run.read_shard(key).arrays
        for key in run.shards()
        if key.name.startswith(prefix) and key.name.removeprefix(prefix).isdigit()
    ]


def _of(probe, arrays):
    names = {
        DepthProbe: lambda n: not n.startswith(("head_", "curvature_")),
        CurvatureProbe: lambda n: n.startswith("curvature_"),
    }
    return {name: values for name, values in arrays.items() if names[type(probe)](name)}


def _empty(kind):
    return (
        CurvatureProbe(1) if kind is CurvatureProbe else DepthProbe(SimpleNamespace(pooled=False))
    )


@settings(max_examples=40)
@given(data=st.data())
@pytest.mark.parametrize("kind", [DepthProbe, CurvatureProbe])
def test_probes_merge_in_any_order_and_grouping(kind, data, parts):
    """Real pieces of an audit, dealt to processes at random, merged as a random tree."""
    _, whole = parts("audit")
    pieces = [_of(_empty(kind), arrays) for arrays in _pieces(whole)]
    together = _empty(kind)
    for piece in pieces:
        together.take(piece)
    dealt = data.draw(st.lists(st.integers(0, 2), min_size=len(pieces), max_size=len(pieces)))
    heap = []
    for process in data.draw(st.permutations(range(3))):
        probe = _empty(kind)
        for place in data.draw(st.permutations(range(len(pieces)))):
            if dealt[place] == process:
                probe.take(pieces[place])
        heap.append(probe)
    while len(heap) > 1:
        first = heap.pop(data.draw(st.integers(0, len(heap) - 1)))
        heap[data.draw(st.integers(0, len(heap) - 1))].merge(first)
    expected, found = together.arrays(), heap[0].arrays()
    assert expected.keys() == found.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, strict=True)
