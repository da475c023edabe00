import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.records.strategies import CHARACTERS, WORDS

from flowscope.errors import InvalidInputError, RecordError
from flowscope.records import Manifest, Measurement, Run, file_hash
from flowscope.records.tables import read_table, write_table

CELLS = st.one_of(
    st.none(),
    st.text(CHARACTERS, max_size=6),
    st.sampled_from(
        ["", "NA", "nan", "001", "True", "1e3", "a,b", 'q"', "\r", "\n", "\r\n", " x ", "#"]
    ),
)


@st.composite
def frames(draw):
    rows = draw(st.integers(0, 5))
    columns = {}
    for name in draw(st.lists(WORDS, min_size=1, max_size=4, unique=True)):
        dtype = draw(st.sampled_from(["?", "i1", "i8", "u8", "f2", "f4", "f8", "text"]))
        if dtype == "text":
            cells = draw(st.lists(CELLS, min_size=rows, max_size=rows))
            columns[name] = pd.Series(cells, dtype=draw(st.sampled_from([object, "str"])))
        else:
            columns[name] = pd.Series(draw(hnp.arrays(dtype, rows)))
    return pd.DataFrame(columns)


def seen(column):
    """Type and cells as text, the sign of zero included; missing is None (NaN has no sign here)."""
    kind = "text" if column.dtype.kind not in "biuf" else column.dtype.name
    return kind, [None if pd.isna(cell) else repr(cell) for cell in column.tolist()]


@settings(deadline=None, max_examples=80)
@given(frames())
def test_a_table_comes_back_exactly(tmp_path_factory, frame):
    folder = tmp_path_factory.getbasetemp() / "tables"
    write_table(folder, "t", frame)
    found = read_table(folder, "t")
    assert list(found.columns) == list(frame.columns)
    assert len(found) == len(frame)
    for name in frame:
        assert seen(found[name]) == seen(frame[name])


@pytest.fixture
def run(tmp_path):
    return Run.create(tmp_path / "run", Manifest())


def test_the_csv_is_plain_and_any_reader_understands_it(run):
    frame = pd.DataFrame({"layer": ["in", "out"], "drift": [0.1, np.nan], "ok": [True, False]})
    path = run.write_table("depth", frame)
    assert path.read_text() == '"layer","drift","ok"\n"in",0.1,True\n"out",nan,False\n'
    pd.testing.assert_frame_equal(pd.read_csv(path), frame)


def test_every_digit_of_a_float_is_kept(run):
    values = np.random.default_rng(0).integers(0, 2**64, 2000, dtype=np.uint64).view(np.float64)
    frame = pd.DataFrame({"double": values, "single": values.view(np.float32)[:2000]})
    run.write_table("t", frame)
    found = run.read_table("t")
    for name in frame:
        np.testing.assert_array_equal(found[name], frame[name], strict=True)


def test_the_table_of_measurements_that_differ_in_axes_comes_back(run):
    good = {"unit": "1", "n": 2, "estimator": "mean", "dtype": "float32"}
    one = Measurement(
        name="a", values=np.arange(2.0), axes=("layer",), coordinates={"layer": ["x", ""]}, **good
    )
    two = Measurement(name="b", values=np.arange(3), axes=("head",), **good)
    gone = Measurement.abstained("c", "no tail, «é»")
    frame = pd.concat([m.to_pandas() for m in (one, two, gone)], ignore_index=True)
    run.write_table("all", frame)
    found = run.read_table("all")
    assert found["layer"].isna().tolist() == [False, False, True, True, True, True]
    assert found["layer"][1] == ""
    assert found["because"][5] == "no tail, «é»"
    blank = frame.astype(object).where(frame.notna(), None)
    pd.testing.assert_frame_equal(found.astype(object).where(found.notna(), None), blank)


def test_a_large_table_is_also_parquet_and_a_small_one_is_not(run, monkeypatch):
    monkeypatch.setattr("flowscope.records.tables.LARGE", 4)
    frame = pd.DataFrame({"x": [0.1, 0.2, np.nan, -0.0], "word": ["a", None, "", "b"]})
    path = run.write_table("t", frame)
    parquet = path.with_suffix(".parquet")
    found = pd.read_parquet(parquet)
    assert found.attrs == {"flowscope_schema": 1}
    pd.testing.assert_frame_equal(found, frame)
    assert file_hash(parquet) in path.with_suffix(".json").read_text()
    run.write_table("t", frame[:3])
    assert not parquet.exists()
    assert len(run.read_table("t")) == 3


def test_without_pyarrow_a_large_table_is_csv_alone(run, monkeypatch):
    monkeypatch.setattr("flowscope.records.tables.LARGE", 1)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = run.write_table("t", pd.DataFrame({"x": [1.0]}))
    assert not path.with_suffix(".parquet").exists()
    assert run.read_table("t")["x"].tolist() == [1.0]


@pytest.mark.parametrize(
    ("frame", "sentence"),
    [
        ([1, 2], "table 't' must be a pandas DataFrame, found list"),
        (pd.DataFrame({"x": [1, 2]})[1:], "an index that a CSV would lose: call reset_index"),
        (
            pd.DataFrame({"x": [1]}, index=pd.RangeIndex(1, name="i")),
            "an index that a CSV would lose",
        ),
        (pd.DataFrame(), r"must have columns of different names, found \[\]"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "columns of different names"),
        (pd.DataFrame({3: [1]}), "a column name of table 't' must be text, found int 3"),
        (
            pd.DataFrame({"x": pd.to_datetime(["2025-03-01"])}),
            "column 'x' of table 't' has dtype datetime64",
        ),
        (pd.DataFrame({"x": pd.Categorical(["a"])}), "has dtype category, expected booleans"),
        (pd.DataFrame({"x": pd.array([1, None], dtype="Int64")}), "has dtype Int64, expected"),
        (pd.DataFrame({"x": [1j]}), "has dtype complex128"),
        (
            pd.DataFrame({"x": ["a", 1, None]}, dtype=object),
            r"holds Python objects \(int\), expected text",
        ),
    ],
)
def test_a_table_that_would_not_come_back_is_refused_in_words(run, frame, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        run.write_table("t", frame)
    assert run.tables() == ()


def test_a_damaged_table_is_refused_with_both_hashes_and_healed_by_writing_again(run):
    frame = pd.DataFrame({"x": [1.0, 2.0]})
    path = run.write_table("t", frame)
    expected = file_hash(path)
    path.write_text(path.read_text().replace("2.0", "3.0"))
    found = file_hash(path)
    with pytest.raises(
        RecordError, match=f"t.csv is damaged: .* is {expected}, .* gives {found}"
    ) as error:
        run.read_table("t")
    assert "Restore it from a copy, or delete it and run again" in str(error.value)
    path.with_suffix(".json").write_text("{")
    with pytest.raises(RecordError, match="damaged or no flowscope file"):
        run.read_table("t")
    run.write_table("t", frame)
    pd.testing.assert_frame_equal(run.read_table("t"), frame)


def test_an_earlier_version_of_a_table_put_back_is_refused(run):
    path = run.write_table("t", pd.DataFrame({"x": [1.0]}))
    old = path.read_bytes()
    run.write_table("t", pd.DataFrame({"x": [2.0]}))
    path.write_bytes(old)
    with pytest.raises(RecordError, match="is damaged"):
        run.read_table("t")


def test_a_missing_table_is_refused_with_the_names_there_are(run):
    with pytest.raises(RecordError, match="the tables of this run are none"):
        run.read_table("t")
    run.write_table("depth", pd.DataFrame({"x": [1.0]}))
    run.write_table("a.b", pd.DataFrame({"x": [2.0]}))
    assert run.tables() == ("a.b", "depth")
    with pytest.raises(RecordError, match=r"there is no table .*t.csv: .* are a\.b, depth"):
        run.read_table("t")
    (run.folder / "tables" / "depth.json").unlink()
    with pytest.raises(RecordError, match=r"depth.json is not there"):
        run.read_table("depth")


UNWRITABLE = ["\0", "a\0b", "\ud800", "x\udcff", "\\x00", "\\", "\\\\x00\0", "\\u0041\0", "", None]


def test_text_that_no_csv_can_hold_comes_back_exactly(run):
    """NUL and halves of surrogate pairs are written with escapes; so is the backslash then."""
    frame = pd.DataFrame({"x": pd.Series(UNWRITABLE, dtype=object), "n": range(len(UNWRITABLE))})
    path = run.write_table("t", frame)
    assert b"\0" not in path.read_bytes()
    path.read_bytes().decode()
    back = run.read_table("t")["x"]
    assert [None if pd.isna(cell) else cell for cell in back] == UNWRITABLE


CHARACTERS = [*map(chr, range(256)), "\u2028", "\u2029", "\u202e", "\u200f", "e\u0301", "</script>",
              "\x1b[31m", "\ufeff", "\r\n", "=1+1", "\ufffe", "\U000e0001"]  # fmt: skip


@pytest.mark.parametrize("characters", [CHARACTERS, [c for c in CHARACTERS if c != "\0"]])
def test_every_character_that_a_tokenizer_can_emit_comes_back_exactly(run, characters):
    cells = [cell for c in characters for cell in (c, f"a{c}", f"{c}b")]
    run.write_table("t", pd.DataFrame({"token": cells}))
    assert run.read_table("t")["token"].tolist() == cells


def test_the_word_for_missing_text_is_none_of_the_cells(run):
    cells = ["", "NA", "NA_", None, "x"]
    run.write_table("t", pd.DataFrame({"x": pd.Series(cells, dtype=object)}))
    back = run.read_table("t")["x"]
    assert [None if pd.isna(cell) else cell for cell in back] == cells
