"""An audit on a CUDA device that is only pretended: devices that are mixed, and what waits.

The bundled model is audited on the CPU and on the pretended device (`pretended`), where the two
sweeps run in numpy as in their tests. An error of mixed devices or generators ends the run. Kept
are the largest difference of each table, relative to the largest entry of its column, and the lines
of flowscope that made the host wait, with how often. Controls are off: a twin is moved in a way
that pretended tensors do not follow.

    OMP_NUM_THREADS=1 python -m benchmarks.attack.pretended_gpu
"""

import json
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import torch
from tests.flows.numpy_triton import LANGUAGE, Launched

import flowscope as fs
from benchmarks.attack.pretended import WAITED, bare, lifted, placed, pretended_gpu
from benchmarks.machine import described
from flowscope.flows import sweep_kernels, swept
from flowscope.instruments.audit.adequacy import cross_forecasts
from flowscope.nets import bundled_path

RESULT = Path(__file__).parents[1] / "results" / "attack_pretended_gpu.json"
SETTINGS: dict[str, Any] = {
    "prompts": 14, "tokens": 24, "resamples": 20, "controls": False, "evi_positions": 0,
    "temperatures": (), "key_norms": (), "curvature_pairs": 2, "flow_rank": 16, "flow_close": 2,
    "flow_positions": 16, "rotation_rank": 4, "rotation_layers": 2, "batch": 7,
    "locking_tokens": 6,
}  # fmt: skip


ROUNDING = ("mass_residual",)
"""Columns that hold nothing but rounding."""


def swept_anywhere(kernel: Any) -> Any:
    """A sweep in numpy that reads pretended tensors."""
    launched = Launched(kernel)

    class Unwrapped:
        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            with torch.utils._python_dispatch._disable_current_modes():
                launch = launched[grid]

            def run(*args: Any, **constants: Any) -> None:
                with torch.utils._python_dispatch._disable_current_modes():
                    launch(*map(bare, args), **constants)

            return run

    return Unwrapped()


def trained_on_cpu(train: Any) -> Any:
    """The same training, of the numbers behind pretended tensors."""
    return lambda sample, **options: lifted(
        train(type(sample)(**{n: bare(v) for n, v in vars(sample).items()}), **options)
    )


def difference(one: pd.DataFrame, other: pd.DataFrame) -> float:
    """Largest difference of a column of numbers, relative to its largest entry."""
    assert len(one) == len(other)
    most = 0.0
    for name in one.columns:
        if one[name].dtype.kind == "f" and name not in ROUNDING:
            x, y = one[name].to_numpy(), other[name].to_numpy()
            known = np.isfinite(x)
            assert (known == np.isfinite(y)).all(), name
            if known.any() and np.abs(x[known]).max() > 0:
                gap = np.abs(x[known] - y[known]).max() / np.abs(x[known]).max()
                most = max(most, float(gap))
    return most


def main() -> None:
    loaded = fs.load(bundled_path(), dtype=torch.float32)
    with tempfile.TemporaryDirectory() as folder:
        plain = fs.audit(loaded, out=f"{folder}/cpu", **SETTINGS)
        model, tokens = placed(loaded.model), loaded.tokenizer
        with (
            mock.patch.object(sweep_kernels, "tl", LANGUAGE),
            mock.patch.multiple(swept, INSTALLED=True, INTERPRETED=True),
            mock.patch.object(swept, "both_sweeps", swept_anywhere(sweep_kernels.both_sweeps)),
            mock.patch.object(
                cross_forecasts,
                "perceptron_drift",
                trained_on_cpu(cross_forecasts.perceptron_drift),
            ),
            pretended_gpu(),
        ):
            found = fs.audit(model, tokenizer=tokens, out=f"{folder}/gpu", **SETTINGS)
        devices = {name: part["device"] for name, part in found.stages.items()}
        outcomes = [{v.name: v.outcome for v in run.verdicts} for run in (plain, found)]
        assert outcomes[0] == outcomes[1], outcomes
        tables = {
            name: difference(plain.run.read_table(name), found.run.read_table(name))
            for name in sorted(plain.run.tables())
        }
    document = {
        "machine": described(),
        "verdicts": outcomes[0],
        "relative_differences": {name: float(f"{gap:.2g}") for name, gap in tables.items()},
        "waits": [
            {"what": what, "where": where, "times": times}
            for (what, where), times in WAITED.most_common()
        ],
        "devices": devices,
    }
    RESULT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"largest difference {max(tables.values()):.2g}; {sum(WAITED.values())} waits")
    for (what, where), times in WAITED.most_common(12):
        print(f"{times:6d}  {where}  ({what})")


if __name__ == "__main__":
    main()
