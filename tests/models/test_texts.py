"""Texts from files and from Python objects, and sentences for what is none."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

from flowscope.errors import InvalidInputError
from flowscope.models.loading import load
from flowscope.models.prompts import prompts_of
from flowscope.models.texts import given_texts, read_texts
from flowscope.nets import bundled_path


def written(folder, name, content):
    file = folder / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


@pytest.mark.parametrize(
    ("name", "content", "texts", "running"),
    [
        ("a.txt", "To be\nor not", ["To be\nor not"], True),
        ("a.txt", "\ufeffTo be", ["To be"], True),
        ("a.txt", "To be\r\nor not", ["To be\nor not"], True),
        ("a.jsonl", '{"text": "a"}\n\n{"text": "b", "more": 1}\n', ["a", "b"], False),
        ("a.jsonl", '{"text": "a\u2028b\u0085c"}\n', ["a\u2028b\u0085c"], False),
        ("a.ndjson", '{"text": ""}', [""], False),
        ("a.csv", 'id,text\n1,"a, b"\n2,"c\nd"\n', ["a, b", "c\nd"], False),
        ("a.TSV", "text\tid\na, b\t1\n", ["a, b"], False),
    ],
)
def test_files(name, content, texts, running, tmp_path):
    read = read_texts(written(tmp_path, name, content))
    assert (read.texts, read.running) == (texts, running)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.txt", b"caf\xe9 au lait", "not UTF-8: byte 0xe9 in line 1. Save it as UTF-8"),
        ("a.txt", " \n ", "is empty"),
        ("a.jsonl", '{"text": null}', r"line 1 of .* must be a string; got nothing \(null\)"),
        ("a.jsonl", '{"text": "a"}\n{"text": 3}', "line 2 of .* must be a string; got int 3"),
        ("a.jsonl", '{"body": "a", "id": 1}', "line 1 of .* has no “text”; its fields: body, id"),
        ("a.jsonl", '["a"]', "line 1 of .* must be a JSON object .*; found list"),
        ("a.jsonl", '{"text": "a"', "line 1 of .* must be a JSON object"),
        ("a.jsonl", "[" * 100_000, "line 1 of .* must be a JSON object"),
        ("a.jsonl", '{"text": "\\ud800"}', r"half of a surrogate pair \(U\+D800"),
        ("a.csv", "id,body\n1,a\n", "no column “text”; its first line names: id, body"),
        ("a.csv", "text\n", "a header and no row"),
        ("a.csv", 'text\n"a', "could not be read as a table"),
        ("a.csv", "id,text\n1\n", "row 1 of .* must be a string; got nothing"),
    ],
)
def test_files_that_are_no_texts_get_a_sentence(name, content, sentence, tmp_path):
    with pytest.raises(InvalidInputError, match=sentence):
        read_texts(written(tmp_path, name, content))


@pytest.mark.parametrize("name", ["nowhere.txt", ".", "a\0b", "x" * 300])
def test_files_that_cannot_be_opened_get_a_sentence(name, tmp_path):
    with pytest.raises(InvalidInputError, match="could not be read"):
        read_texts(f"{tmp_path}/{name}")


class Rows:
    """A data set: named columns, rows by number."""

    column_names = ("id", "text")

    def __getitem__(self, name):
        return {"id": [1, 2], "text": ["a", "b"]}[name]


@pytest.mark.parametrize(
    "given",
    [
        ["a", "b"],
        ("a", "b"),
        iter(["a", "b"]),
        np.array(["a", "b"]),
        pd.Series(["a", "b"], index=[7, 9]),
        pd.DataFrame({"id": [1, 2], "text": ["a", "b"]}),
        [{"text": "a"}, {"text": "b"}],
        {"text": ["a", "b"]},
        Rows(),
    ],
    ids=lambda given: type(given).__name__,
)
def test_whatever_holds_texts_is_read(given):
    read = given_texts(given)
    assert (read.texts, read.running) == (["a", "b"], False)


def test_one_string_is_a_running_text_and_images_stay_images():
    assert given_texts("To be").running
    images = torch.zeros(2, 3, 4, 4)
    assert given_texts(images) is images


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([], "at least one text"),
        ("  ", "empty"),
        (b"bytes", "got bytes. Give a list of strings"),
        (3, "got int"),
        (None, "got NoneType"),
        ([None], r"text 0 must be a string; got nothing"),
        (["a", 3.5], "text 1 must be a string; got float 3.5"),
        (pd.Series(["a", np.nan]), "text 1 must be a string; got float nan"),
        ([["a", "b"]], "text 0 must be a string; got list"),
        ([{"body": "a"}], "text 0 has no “text”; its fields: body"),
        (pd.DataFrame({"body": ["a"]}), "no column “text”; their columns: body"),
        (["a\ud800"], "surrogate"),
    ],
)
def test_whatever_holds_none_gets_a_sentence(given, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        given_texts(given)


@pytest.fixture(scope="module")
def loaded():
    return load(bundled_path())


def test_copies_and_short_prompts_are_left_out_and_counted(loaded):
    texts = ["Call me Ishmael.", "", "It was the best of times.", "Call me Ishmael."] * 3
    prompts = prompts_of(loaded, texts, count=16, length=8)
    assert len(prompts) == 2
    assert prompts.left_out == {"with fewer than two tokens": 3, "equal to an earlier one": 7}
    words = prompts.facts["left_out"]
    assert words == "3 with fewer than two tokens, 7 equal to an earlier one"
    assert "left_out" not in prompts_of(loaded, texts[:1], count=1, length=8).facts


def test_count_is_of_different_prompts(loaded):
    texts = ["Call me Ishmael.", "Call me Ishmael.", "It was the best of times."]
    assert len(prompts_of(loaded, texts, count=2, length=8)) == 2


def test_prompts_that_are_cut_to_the_same_tokens_are_copies(loaded):
    texts = ["Call me Ishmael. Some years ago", "Call me Ishmael. Never mind"]
    assert len(prompts_of(loaded, texts, count=4, length=3)) == 1


def test_one_long_line_is_cut_into_windows(loaded):
    prompts = prompts_of(loaded, "It was the best of times. " + "Call me Ishmael. " * 400,
                         count=8, length=16)  # fmt: skip
    assert 1 < len(prompts) <= 8
    assert {len(item) for item in prompts.items[:-1]} == {16}


def test_left_out_prompts_are_shown(loaded, tmp_path, capsys):
    from rich.console import Console

    import flowscope
    from flowscope.instruments.audit.headline import show

    texts = ["Call me Ishmael. Some years ago", "It was the best of times, it was the worst"]
    result = flowscope.audit(loaded, texts * 4, only="P0", tokens=8, out=tmp_path / "run",
                             progress=False)  # fmt: skip
    document = result.to_json()
    assert document["measured"]["left_out"] == "6 equal to an earlier one"
    show(json.loads(json.dumps(document)), Console())
    assert "Prompts left out: 6 equal to an earlier one." in capsys.readouterr().out
