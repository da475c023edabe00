"""Join the tables of the parts of the study ``pde_view`` into those of the whole study.

``benchmarks.pde_view_gpu`` runs a part for each task and seed, then the whole study from the shards
of the parts. Where only the tables of the parts are left, this script makes those of the whole from
them: an interval over seeds needs one mean a seed, which the parts have. What needs the networks of
two seeds at once (the paths of another seed) is not in the parts, and stays out.

    python -m benchmarks.pde_view_joined FOLDER_OF_RUNS TARGET

The manifest is that of the unfinished run of the whole study in FOLDER_OF_RUNS.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from flowscope.instruments.field.pde_view.statements import pde_statement_table
from flowscope.instruments.field.pde_view.summaries import summarised
from flowscope.lab.registry import study
from flowscope.lab.result import open_run
from flowscope.records import Run, Unavailable

BY_SEED = ("networks", "alignment_seeds", "distilled")
ONE_SEED = ("rates", "rate_runs")
OVER = ["over", "units"]


def joined(frames, table):
    """Table of the whole study from those of the parts of several seeds."""
    keys = list(table.keys)
    whole = pd.concat(frames, ignore_index=True)
    groups = list(whole.groupby(keys, sort=False))
    means = [name for name in table.schema if f"{name}_low" in table.schema]
    values = np.stack([[rows[means].to_numpy(float)] for _, rows in groups], 2)
    named = pd.DataFrame([rows[keys].iloc[0] for _, rows in groups])
    # [1, seeds, rows, columns] to [seeds, prompts, rows, columns]: one mean a seed
    made = summarised(named, means, values.transpose(1, 0, 2, 3))
    for name in (name for name in table.schema if name.endswith("_shuffled")):
        made[name] = [rows[name].mean() for _, rows in groups]
    return made[list(table.schema)]


def curves(frames, table):
    """Curves of training, the least and the largest seed beside them."""
    whole, keys = pd.concat(frames, ignore_index=True), list(table.keys)
    groups = whole.groupby(keys, sort=False)
    made = groups["loss"].agg(["mean", "min", "max"])
    made.columns = ["loss", "loss_low", "loss_high"]
    made["gradient"] = groups["gradient"].agg(lambda values: np.exp(np.log(values).mean()))
    made["gradient_low"], made["gradient_high"] = (
        groups["gradient"].min(),
        groups["gradient"].max(),
    )
    return made.reset_index()[list(table.schema)]


def tables_of(parts, tables):
    """Every table of the whole study but that of its claims."""
    for name, table in tables.items():
        frames = [run.read_table(name) for run in parts if name in run.tables()]
        if not frames or name == "pde_view":
            continue
        if name in ONE_SEED:
            yield name, frames[0]
        elif name in BY_SEED:
            whole = pd.concat(frames, ignore_index=True)
            yield name, _sorted(whole, ["task", "seed"])
        else:
            made = (curves if name == "curves" else joined)(frames, table)
            yield name, _sorted(made, ["task"])


def _sorted(frame, names):
    """Rows by task, in the order of the study, other rows as they are."""
    ranks = {task: k for k, task in enumerate(("listops", "topics", "mnist", "texts"))}
    keyed = frame.assign(_task=frame["task"].map(ranks))
    by = ["_task", *(name for name in names if name != "task")]
    return keyed.sort_values(by, kind="stable", ignore_index=True).drop(columns="_task")


def main():
    """Write the joined run and its report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("target", type=Path)
    given = parser.parse_args()
    runs = [Run.open(path.parent) for path in sorted(given.folder.glob("field-*/manifest.json"))]
    parts = [run for run in runs if _seeds(run) == 1]
    (whole,) = (run for run in runs if _seeds(run) > 1)
    plan = study("pde_view")
    made = Run.create(given.target, whole.read_manifest())
    for name, frame in tables_of(sorted(parts, key=_seed), plan.tables):
        made.write_table(name, frame)
    made.write_measurements([])
    made.write_verdicts([])
    made.write_table("pde_view", pde_statement_table(made))
    times = [run.read_manifest().wall_time for run in parts]
    made.update_manifest(
        wall_time=Unavailable(f"joined from {len(parts)} parts of {max(times):.0f} s at most"),
        files=made.file_hashes(),
    )
    open_run(given.target).report(png=True)


def _seeds(run):
    return len(run.read_manifest().config_resolved["study"]["seeds"])


def _seed(run):
    return run.read_manifest().config_resolved["study"]["seeds"][0]


if __name__ == "__main__":
    main()
