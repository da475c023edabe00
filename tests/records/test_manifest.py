import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from tests.records.strategies import CONFIGS, manifests, portrait

import flowscope
from flowscope.errors import InvalidInputError, RecordError
from flowscope.records import SCHEMA, Manifest, Unavailable, fingerprint, library_versions
from flowscope.records.storage.documents import sealed


@settings(deadline=None, max_examples=60)
@given(manifests())
def test_json_gives_back_the_same_manifest(manifest):
    assert portrait(Manifest.from_json(manifest.to_json())) == portrait(manifest)
    assert portrait(pickle.loads(pickle.dumps(manifest))) == portrait(manifest)


def test_the_json_is_strict_and_absences_are_explicit():
    manifest = Manifest(config_given={"clip": float("inf")}, commit=Unavailable("no repository"))

    def refuse(constant):
        raise AssertionError(constant)

    document = json.loads(manifest.to_json(), parse_constant=refuse)
    assert document["commit"] == {"unavailable": "no repository"}
    assert document["device"] == {"unavailable": "not given"}
    assert document["config_given"] == {"clip": {"nonfinite": "inf"}}
    assert document["schema"] == SCHEMA


def test_a_manifest_cannot_be_changed_through_the_config_it_was_given():
    config = {"layers": [1, 2], "nested": {"a": 1}}
    manifest = Manifest(config_given=config)
    config["layers"].append(3)
    config["nested"]["a"] = 2
    assert manifest.config_given["layers"] == (1, 2)
    assert manifest.config_given["nested"]["a"] == 1
    with pytest.raises(TypeError):
        manifest.config_given["nested"]["a"] = 3


def test_versions_are_those_installed_and_absences_say_so(monkeypatch):
    versions = library_versions()
    assert versions["numpy"] == np.__version__
    assert versions["flowscope"] == flowscope.__version__
    monkeypatch.setattr("flowscope.records.manifest._LIBRARIES", ("no-such-library",))
    absent = library_versions()["no-such-library"]
    assert isinstance(absent, Unavailable)
    assert absent.reason == "no-such-library is not installed"


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({"config_given": [1]}, "config_given of the manifest must be a mapping, found list"),
        ({"config_given": {"a": {"b": Path("x")}}}, r"manifest\.a\.b is a PosixPath, which JSON"),
        ({"config_given": {"a": [np.int64(3)]}}, r"manifest\.a\[0\] is a int64, which JSON cannot"),
        ({"config_given": {3: "a"}}, "a key of config_given of the manifest must be text"),
        (
            {"config_given": {"a": {"unavailable": "x"}}},
            "single key 'unavailable', which flowscope",
        ),
        (
            {"config_given": {"a": {"nonfinite": "nan"}}},
            "single key 'nonfinite', which flowscope uses",
        ),
        ({"seeds": {"a": 1.5}}, "seeds of the manifest.a must be a whole number"),
        ({"weight_hashes": {"a": 3}}, "weight_hashes of the manifest.a must be text"),
        ({"device": ""}, "device of the manifest must not be empty"),
        ({"wall_time": -1.0}, "finite and not negative, found -1.0"),
        ({"wall_time": float("inf")}, "finite and not negative, found inf"),
        ({"wall_time": "3 s"}, "must be seconds, found '3 s'"),
        ({"created_at": "yesterday"}, "ISO 8601 time with its offset from UTC, like"),
        ({"created_at": "2025-03-01T12:00:00"}, "with its offset from UTC"),
        ({"schema": SCHEMA + 1}, f"must be 1 to {SCHEMA}, found {SCHEMA + 1}"),
    ],
)
def test_a_manifest_that_breaks_an_invariant_is_refused_in_words(parts, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        Manifest(**parts)


def edited(**changes):
    return json.dumps({**json.loads(Manifest(seeds={"all": 7}).to_json()), **changes})


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (
            edited(schema=3),
            f"m.json was made by schema 3, this flowscope reads up to {SCHEMA}: upgrade",
        ),
        (edited(schema=0), "has schema 0, expected a number from 1"),
        (edited(schema="1"), "has schema '1', expected a number"),
        (edited(schema=True), "has schema True, expected a number"),
        (
            edited(seeds={"all": 8}),
            "m.json is damaged: its recorded sha256 is [0-9a-f]{64}, its content gives",
        ),
        (edited(kind="verdicts"), "m.json is damaged"),
        ("{}", "no flowscope file: expected a JSON object"),
        ("[]", "no flowscope file"),
        ("3", "no flowscope file"),
        ("[" * 100_000, "no flowscope file"),
        (Manifest().to_json()[:-30], "m.json is damaged or no flowscope file"),
        (b"\xff\xfe\x00", "m.json is damaged or no flowscope file"),
    ],
)
def test_a_document_that_is_not_what_was_written_is_refused_in_words(document, sentence):
    with pytest.raises(RecordError, match=sentence):
        Manifest.from_json(document, "m.json")


def test_a_whole_document_that_is_no_manifest_is_refused_in_words():
    parts = json.loads(Manifest().to_json())
    parts.pop("sha256")
    with pytest.raises(RecordError, match=r"m.json lacks config_given, .*, created_at: restore"):
        Manifest.from_json(sealed("manifest", {}), "m.json")
    wrong = {**parts, "seeds": {"all": 1.5}}
    with pytest.raises(RecordError, match="is no valid manifest: seeds of the manifest"):
        Manifest.from_json(sealed("manifest", wrong), "m.json")
    with pytest.raises(RecordError, match=r"m.json holds 'verdicts', expected 'manifest'"):
        Manifest.from_json(sealed("verdicts", {}), "m.json")


@settings(deadline=None, max_examples=50)
@given(CONFIGS)
def test_a_fingerprint_does_not_depend_on_the_order_of_the_keys(config):
    backwards = dict(reversed(config.items()))
    assert fingerprint(config) == fingerprint(backwards)
    assert fingerprint(config) != fingerprint({**config, "one more": "of them"})


def test_a_fingerprint_tells_types_and_signs_apart():
    values = [1, 1.0, True, "1", None, 0.0, -0.0, float("nan"), [1], {"a": 1}]
    assert len({fingerprint(value) for value in values}) == len(values)
