"""The tables of one audit on a GPU beside those on the CPU, float32, the bundled model.

Question: how far apart are the numbers that a user reads? For every table the largest difference of
a column, relative to its largest entry; and the verdicts. P3 is left out, as POT may be missing.

    python -m benchmarks.audit_devices --out audit_devices.json
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import flowscope as fs
from benchmarks.audit_gpu import LESS
from benchmarks.machine import described
from flowscope.nets import bundled_path

SETTINGS: dict[str, Any] = {
    "prompts": 32, "tokens": 64, "resamples": 200, "controls": False, **LESS,
}  # fmt: skip


def differences(one: pd.DataFrame, other: pd.DataFrame) -> dict[str, float]:
    """Of each column of numbers: the largest difference, relative to its largest entry."""
    assert len(one) == len(other)
    found = {}
    for name in one.columns:
        if one[name].dtype.kind != "f":
            continue
        x, y = one[name].to_numpy(), other[name].to_numpy()
        known = np.isfinite(x)
        if not (known == np.isfinite(y)).all():
            found[name] = float("inf")
        elif known.any() and np.abs(x[known]).max() > 0:
            found[name] = float(np.abs(x[known] - y[known]).max() / np.abs(x[known]).max())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("audit_devices.json"))
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    loaded = fs.load(bundled_path(), dtype=torch.float32)
    runs = {}
    with tempfile.TemporaryDirectory() as folder:
        for device in ("cpu", options.device):
            loaded.model.to(device)
            runs[device] = fs.audit(
                loaded.model, tokenizer=loaded.tokenizer, out=f"{folder}/{device}-run", **SETTINGS
            )
            if device == options.device == "cpu":
                break
        plain, found = runs["cpu"], runs[options.device]
        tables = {
            name: differences(plain.run.read_table(name), found.run.read_table(name))
            for name in sorted(plain.run.tables())
        }
        verdicts = {
            device: {v.name: v.outcome for v in run.verdicts} for device, run in runs.items()
        }
        seconds = {
            device: {name: part["seconds"] for name, part in run.stages.items()}
            for device, run in runs.items()
        }
    worst = {name: max(columns.values(), default=0.0) for name, columns in tables.items()}
    figures = {
        "machine": described(),
        "verdicts": verdicts,
        "seconds": seconds,
        "largest": worst,
        "columns": {
            name: {column: float(f"{gap:.2g}") for column, gap in columns.items() if gap > 1e-6}
            for name, columns in tables.items()
        },
    }
    options.out.write_text(json.dumps(figures, indent=1, default=str) + "\n", encoding="utf-8")
    for name, gap in sorted(worst.items(), key=lambda pair: -pair[1]):
        print(f"{name:<20}{gap:10.2g}  {max(tables[name], key=tables[name].get, default='')}")
    print(verdicts)


if __name__ == "__main__":
    main()
