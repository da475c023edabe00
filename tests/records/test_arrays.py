import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.records.strategies import TEXTS, WORDS, arrays, portrait

from flowscope.errors import InvalidInputError, RecordError
from flowscope.records import array_hash, file_hash
from flowscope.records.storage.arrays import arrays_to_bytes, bytes_to_arrays

SETS = st.dictionaries(WORDS, arrays(), max_size=4)


@settings(deadline=None, max_examples=60)
@given(SETS)
def test_safetensors_give_back_every_bit(given_arrays):
    content = arrays_to_bytes("arrays", given_arrays, {"note": 3})
    found, note = bytes_to_arrays(content, "arrays", "a file")
    native = {
        name: array.astype(array.dtype.newbyteorder("=")) for name, array in given_arrays.items()
    }
    assert portrait(found) == portrait(native)
    assert note == {"note": 3}


@settings(deadline=None, max_examples=50)
@given(SETS)
def test_the_same_arrays_give_the_same_file(given_arrays):
    backwards = dict(reversed(given_arrays.items()))
    assert arrays_to_bytes("arrays", given_arrays) == arrays_to_bytes("arrays", backwards)


@pytest.mark.parametrize("layout", ["transposed", "strided", "fortran", "0-d"])
def test_arrays_of_any_memory_layout_are_written_right(layout):
    base = np.arange(24.0).reshape(4, 6)
    array = {
        "transposed": base.T,
        "strided": base[::2, ::-3],
        "fortran": np.asfortranarray(base),
        "0-d": np.array(3.5),
    }[layout]
    found, _ = bytes_to_arrays(arrays_to_bytes("arrays", {"x": array}), "arrays", "a file")
    np.testing.assert_array_equal(found["x"], array, strict=True)
    assert array_hash({"x": array}) == array_hash({"x": found["x"]})


@settings(deadline=None, max_examples=50)
@given(SETS)
def test_the_hash_does_not_depend_on_key_order(given_arrays):
    assert array_hash(given_arrays) == array_hash(dict(reversed(given_arrays.items())))


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_the_hash_changes_with_any_one_bit(data):
    array = data.draw(arrays(st.just((3,))))
    bit = data.draw(st.integers(0, array.nbytes * 8 - 1))
    flipped = bytearray(array.tobytes())
    flipped[bit // 8] ^= 1 << bit % 8
    other = np.frombuffer(bytes(flipped), array.dtype)
    assert array_hash({"x": array}) != array_hash({"x": other})


@settings(deadline=None, max_examples=50)
@given(TEXTS, TEXTS)
def test_the_hash_changes_with_a_name(one, other):
    same = array_hash({one: np.zeros(2)}) == array_hash({other: np.zeros(2)})
    assert same == (one == other)


def test_the_hash_changes_with_dtype_shape_and_the_cut_between_parts():
    zeros = np.zeros(4, np.float32)
    variants = [
        {"x": zeros},
        {"x": zeros.view(np.int32)},
        {"x": zeros.reshape(2, 2)},
        {"x": zeros[:2], "y": zeros[:2]},
        {},
        {"x": zeros[:0]},
        {"x": zeros[:0].reshape(0, 3)},
    ]
    assert len({array_hash(variant) for variant in variants}) == len(variants)


def test_the_hash_does_not_depend_on_byte_order():
    assert array_hash({"x": np.arange(3.0)}) == array_hash({"x": np.arange(3.0).astype(">f8")})


def test_python_objects_have_no_hash():
    with pytest.raises(InvalidInputError, match="array 'x' has dtype object, expected numbers"):
        array_hash({"x": np.array([None])})


def test_the_file_hash_is_sha256(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"flow" * 100_000)
    assert file_hash(path) == hashlib.sha256(b"flow" * 100_000).hexdigest()
    with pytest.raises(RecordError, match="nowhere is not there"):
        file_hash(tmp_path / "nowhere")
    with pytest.raises(RecordError, match="should be a readable file, found: Is a directory"):
        file_hash(tmp_path)


@pytest.mark.parametrize(
    ("given_arrays", "sentence"),
    [
        ({"__metadata__": np.zeros(2)}, "cannot be named '__metadata__'"),
        ({"": np.zeros(2)}, "name of an array must not be empty"),
        ({3: np.zeros(2)}, "name of an array must be text"),
        ({"x": np.zeros(2, complex)}, "array 'x' must hold booleans"),
        ({"x": np.array([None])}, "found dtype object"),
    ],
)
def test_arrays_that_would_not_come_back_are_refused_in_words(given_arrays, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        arrays_to_bytes("arrays", given_arrays)


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_no_flipped_bit_gives_other_arrays(data):
    """A flip is found, or it hit what carries no content (padding, a space in the header)."""
    original = {"x": np.arange(3.0), "y": np.array([True, False])}
    content = arrays_to_bytes("arrays", original, {"note": "a"})
    bit = data.draw(st.integers(0, len(content) * 8 - 1))
    flipped = bytearray(content)
    flipped[bit // 8] ^= 1 << bit % 8
    try:
        found, note = bytes_to_arrays(bytes(flipped), "arrays", "a file")
    except RecordError:
        return
    assert portrait(found) == portrait(original)
    assert note == {"note": "a"}


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 400))
def test_a_truncated_file_is_refused_with_its_name(length):
    content = arrays_to_bytes("arrays", {"x": np.arange(30.0)})
    with pytest.raises(RecordError, match=f"x.safetensors is damaged.* found {length} bytes"):
        bytes_to_arrays(content[:length], "arrays", "x.safetensors")


def test_a_foreign_safetensors_file_is_refused_in_words():
    from safetensors.numpy import save

    with pytest.raises(RecordError, match="with flowscope's note"):
        bytes_to_arrays(save({"x": np.zeros(2)}), "arrays", "a file")
    content = arrays_to_bytes("shard", {"x": np.zeros(2)})
    with pytest.raises(RecordError, match="holds 'shard', expected 'arrays': is it misplaced"):
        bytes_to_arrays(content, "arrays", "a file")
    newer = save({}, metadata={"flowscope": '{"schema": 3, "kind": "arrays"}'})
    with pytest.raises(RecordError, match="made by schema 3, this flowscope reads up to 1"):
        bytes_to_arrays(newer, "arrays", "a file")
