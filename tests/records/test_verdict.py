import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from tests.records.strategies import portrait, verdicts

from flowscope.errors import InvalidInputError
from flowscope.records import Interval, Measurement, Unavailable, Verdict
from flowscope.records.storage.archive import document_to_verdict, verdict_to_document

NONE = Unavailable("not asked for")


def single(value=0.25, **parts):
    return Measurement(
        name="gap", values=value, unit="nat", n=8, estimator="mean", dtype="float64", **parts
    )


GOOD = {
    "name": "P9",
    "claim": "layers contract",
    "statistic": single(),
    "null": single(0.125),
    "effect": 0.125,
    "interval": Interval(low=0.0625, high=0.25, level=0.95, method="bootstrap"),
    "decision": "holds",
    "because": "the interval lies above 0",
}


def test_the_table_of_a_verdict_is_one_row_with_all_its_numbers():
    table = Verdict(**GOOD, strength="clear", p=0.03125).to_pandas()
    assert len(table) == 1
    row = table.iloc[0].to_dict()
    assert row == {
        "name": "P9",
        "claim": "layers contract",
        "decision": "holds",
        "outcome": "holds",
        "strength": "clear",
        "statistic": "gap",
        "value": 0.25,
        "null": "gap",
        "null_value": 0.125,
        "effect": 0.125,
        "low": 0.0625,
        "high": 0.25,
        "level": 0.95,
        "p": 0.03125,
        "n": 8,
        "unit": "nat",
        "because": "the interval lies above 0",
    }


def test_a_verdict_without_numbers_shows_nan_and_its_reason():
    gone = Measurement.abstained("gap", "no tail")
    verdict = Verdict(
        name="n", claim="c", statistic=gone, null=NONE, effect=NONE, interval=NONE,
        decision="abstains", because="the gap abstained",
    )  # fmt: skip
    row = verdict.to_pandas().iloc[0]
    assert np.isnan([row["value"], row["null_value"], row["effect"], row["low"]]).all()
    assert row["because"] == "the gap abstained"
    assert (row["outcome"], row["strength"]) == ("abstains", "")
    assert np.isnan(row["p"])


def test_an_uninformative_verdict_abstains():
    verdict = Verdict(**{**GOOD, "decision": "abstains"}, outcome="uninformative")
    assert (verdict.decision, verdict.outcome) == ("abstains", "uninformative")


@pytest.mark.parametrize("later", [(), ("p",), ("outcome", "strength", "p")])
def test_a_document_of_an_earlier_version_is_read_without_the_later_parts(later):
    arrays = {}
    document = verdict_to_document(Verdict(**GOOD, strength="weak", p=0.5), arrays)
    old = {key: part for key, part in document.items() if key not in later}
    verdict = document_to_verdict(old, arrays)
    assert verdict.outcome == "holds"
    assert verdict.strength == ("" if "strength" in later else "weak")
    assert isinstance(verdict.p, Unavailable) == ("p" in later)


@settings(deadline=None, max_examples=40)
@given(verdicts())
def test_pickling_keeps_every_bit(verdict):
    assert portrait(pickle.loads(pickle.dumps(verdict))) == portrait(verdict)


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({"name": " "}, "the name of a verdict must not be empty"),
        ({"claim": ""}, "the claim of a verdict must not be empty"),
        ({"because": ""}, "of the verdict on 'layers contract' must not be empty"),
        ({"decision": "maybe"}, "one of holds, fails, abstains, found 'maybe'"),
        ({"statistic": 0.3}, "must be a Measurement, found float"),
        ({"null": None}, "the null of the verdict on 'layers contract' must be a Measurement"),
        (
            {"statistic": single(np.zeros(2), axes=("layer",))},
            r"must be a single number, found axes \('layer',\): reduce it first",
        ),
        (
            {"statistic": Measurement.failed("gap", "it broke")},
            r"has status failed \(it broke\): the decision must be abstains, found holds",
        ),
        ({"effect": float("nan")}, "must be one number, found nan: where there is none"),
        ({"effect": np.zeros(2)}, "must be one number"),
        ({"effect": True}, "must be one number"),
        ({"outcome": "maybe"}, "one of holds, fails, uninformative, abstains, found 'maybe'"),
        ({"outcome": "fails"}, "must be fails, because the outcome is fails; found holds"),
        ({"outcome": "uninformative"}, "must be abstains, because the outcome is uninformative"),
        ({"strength": "huge"}, "one of , negligible, weak, clear, strong, found 'huge'"),
        ({"p": 1.5}, "must be one number from 0 to 1, found 1.5"),
        ({"p": float("nan")}, "must be one number from 0 to 1, found nan"),
        ({"interval": (0, 1)}, "must be an Interval of two floats or Unavailable"),
        (
            {"interval": Interval(low=np.zeros(2), high=np.ones(2), level=0.9, method="b")},
            "must be an Interval of two floats",
        ),
    ],
)
def test_a_verdict_that_breaks_an_invariant_is_refused_in_words(parts, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        Verdict(**{**GOOD, **parts})
