"""The comparison of two versions notices what it must, on planted changes."""

import json
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from benchmarks.golden import runs
from benchmarks.golden.compare import Comparison, compare_documents, compare_folders, decisions

from flowscope.records import Interval, Manifest, Measurement, Run, Verdict

TABLE = pd.DataFrame(
    {
        "layer": [1, 2],
        "drift": [0.5, 0.1],
        "status": ["ok", "abstained"],
        "because": ["", "too few points"],
        "interval_method": ["bca", "none: no signal"],
    }
)


def _measurement(value):
    return Measurement(
        name="drift",
        values=np.float64(value),
        axes=(),
        unit="1",
        n=20,
        estimator="mean over prompts",
        dtype="float64",
        interval=Interval(
            low=value - 0.1, high=value + 0.1, level=0.95, method="percentile bootstrap"
        ),
    )


def _verdict(decision="holds", value=0.5, because="below 0.6"):
    return Verdict(
        name="P0",
        claim="the drift is small",
        decision=decision,
        because=because,
        statistic=_measurement(value),
        null=_measurement(0.7),
        effect=-0.2,
        interval=Interval(low=-0.3, high=-0.1, level=0.95, method="percentile bootstrap"),
    )


def _written(
    folder, *, tables=None, verdict=None, array=0.25, settings=None, commit="a" * 40, weights="f"
):
    settings = settings or {"seed": 0, "out": f"{folder}/runs"}
    run = Run.create(
        folder,
        Manifest(
            config_given={},
            config_resolved=settings,
            seeds={"bootstrap": 0},
            weight_hashes={"model": weights * 8},
            commit=commit,
            wall_time=float(len(str(folder))),
        ),
    )
    for name, table in ({"depth": TABLE, "heads": TABLE} if tables is None else tables).items():
        run.write_table(name, table)
    run.write_arrays("prompts", {"drift": np.array([0.5, array])})
    run.write_measurements([_measurement(0.5)])
    run.write_verdicts([verdict or _verdict()])
    return folder


@pytest.fixture
def outcome(tmp_path):
    def compared(**changes):
        comparison = Comparison()
        new = _written(tmp_path / "new", **changes)
        compare_folders(_written(tmp_path / "old"), new, comparison)
        return comparison

    return compared


def _changed(column, row, value):
    table = TABLE.copy()
    table.loc[row, column] = value
    return {"depth": table, "heads": TABLE}


def test_equal_folders_have_no_difference(outcome):
    comparison = outcome(commit="b" * 40)
    assert comparison.differences == []
    assert comparison.additions == []
    assert comparison.tables == 2
    assert comparison.values > 20


def test_a_changed_number_is_a_difference(outcome):
    comparison = outcome(tables=_changed("drift", 1, np.nextafter(0.1, 1)))
    assert comparison.differences == ["tables/depth.drift, row 1: 0.1 → 0.10000000000000002"]


def test_a_changed_status_is_a_difference(outcome):
    (line,) = outcome(tables=_changed("status", 0, "abstained")).differences
    assert line == "tables/depth.status, row 0: ok → abstained"


def test_a_changed_type_is_a_difference(outcome):
    table = TABLE.assign(layer=[1, 2]).astype({"layer": "int32"})
    (line,) = outcome(tables={"depth": table, "heads": TABLE}).differences
    assert line == "tables/depth.layer, type: int64 → int32"


def test_a_changed_decision_is_a_difference(outcome):
    lines = outcome(verdict=_verdict("fails")).differences
    assert lines == [
        f"verdicts.verdicts[P0].{name}: holds → fails" for name in ("decision", "outcome")
    ]


def test_a_changed_statistic_of_a_verdict_is_a_difference(outcome):
    differences = outcome(verdict=_verdict(value=0.25)).differences
    assert differences[0].startswith("verdicts.verdicts[P0].statistic.values.values[0]: 0.5")


def test_a_changed_array_is_a_difference(outcome):
    (line,) = outcome(array=0.2500001).differences
    assert line.startswith("arrays/prompts.safetensors.drift")


def test_a_lost_column_is_a_difference_and_a_new_one_is_listed(outcome):
    table = TABLE.drop(columns="layer").assign(depth=[0.5, 1.0])
    comparison = outcome(tables={"depth": table, "heads": TABLE})
    assert comparison.differences == ["tables/depth: layer is lost"]
    assert comparison.additions == ["tables/depth: depth"]


def test_a_lost_table_is_a_difference_and_a_new_one_is_listed(outcome):
    comparison = outcome(tables={"depth": TABLE, "jumps": TABLE})
    assert comparison.differences == ["tables: heads is lost"]
    assert comparison.additions == ["tables: jumps"]


def test_a_lost_row_is_a_difference(outcome):
    (line,) = outcome(tables={"depth": TABLE[:1], "heads": TABLE}).differences
    assert line == "tables/depth, rows: 2 → 1"


def test_reworded_sentences_are_equal_and_vanished_ones_are_not(outcome):
    comparison = outcome(
        tables=_changed("because", 1, "fewer points than needed"),
        verdict=_verdict(because="less than 0.6"),
    )
    assert comparison.differences == []


def test_a_vanished_sentence_is_a_difference(outcome):
    (line,) = outcome(tables=_changed("because", 1, "")).differences
    assert line.startswith("tables/depth.because, row 1")


def test_the_first_word_of_a_method_is_compared(outcome):
    assert outcome(tables=_changed("interval_method", 1, "none: quiet")).differences == []


def test_another_method_is_a_difference(outcome):
    assert len(outcome(tables=_changed("interval_method", 0, "percentile")).differences) == 1


def test_a_new_setting_is_listed_and_a_changed_one_is_a_difference(outcome):
    comparison = outcome(settings={"seed": 1, "out": "/another/runs", "command": "audit"})
    assert comparison.differences == ["manifest.config_resolved.seed: 0 → 1"]
    assert comparison.additions == ["manifest.config_resolved: command"]


def test_other_weights_are_a_difference(outcome):
    (line,) = outcome(weights="e").differences
    assert line == "manifest.weight_hashes.model: ffffffff → eeeeeeee"


def test_the_fingerprint_of_a_model_without_weights_is_left_out(tmp_path):
    old = _written(tmp_path / "image-mixture-ffffff")
    comparison = Comparison()
    compare_folders(old, _written(tmp_path / "image-mixture-eeeeee", weights="e"), comparison)
    assert comparison.differences == []


def test_lost_files_are_differences(tmp_path):
    old, new = _written(tmp_path / "old"), _written(tmp_path / "new")
    (new / "verdicts.json").unlink()
    shutil.rmtree(new / "arrays")
    comparison = Comparison()
    compare_folders(old, new, comparison)
    assert comparison.differences == ["arrays: prompts is lost", "files: verdicts.json is lost"]


@pytest.mark.parametrize(
    ("new", "count"),
    [
        ({"n": 8, "run": "/b", "x": None, "rows": [1.0, 2.0]}, 0),
        ({"n": 8.0, "run": "/b", "x": None, "rows": [1.0, 2.0]}, 1),
        ({"n": 8, "run": "/b", "x": 0, "rows": [1.0, 2.0]}, 1),
        ({"n": 8, "run": "/b", "x": None, "rows": [1.0]}, 1),
        ({"n": 8, "x": None, "rows": [1.0, 3.0]}, 2),
    ],
)
def test_documents_are_compared_by_value_and_type(new, count):
    comparison = Comparison()
    old = {"n": 8, "run": "/a", "x": None, "rows": [1.0, 2.0]}
    compare_documents("json", old, json.loads(json.dumps(new)), comparison)
    assert len(comparison.differences) == count


def test_decided_verdicts_are_those_that_do_not_abstain():
    outcomes = {"P0": "holds", "P1": "abstains", "P2": "fails"}
    verdicts = [{"name": name, "decision": decision} for name, decision in outcomes.items()]
    assert decisions({"verdicts": verdicts}) == {"P0": True, "P1": False, "P2": True}
    assert decisions({}) == {}


def test_the_reference_is_the_last_entry_and_every_move_has_a_reason():
    entries = tomllib.loads((Path(runs.__file__).parent / "reference.toml").read_text("utf-8"))
    assert [set(entry) for entry in entries["reference"]] == [{"commit", "because"}] * len(
        entries["reference"]
    )
    assert all(len(entry["commit"]) == 40 and entry["because"] for entry in entries["reference"])
    assert entries["reference"][-1]["commit"] == runs.COMMIT
    assert len({run.name for run in runs.RUNS}) == len(runs.RUNS) == 8
