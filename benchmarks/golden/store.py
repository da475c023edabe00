"""Make the stored values of ``tests/golden/values``, with the code of the reference commit.

Every run of `SMALL` is made twice: with the instructions this processor has, and with the plainest
ones that torch knows. A column whose values differ between the two by more than a tenth of the
tolerance of the tests would not be the same on another processor, and is left out.

    python -m benchmarks.golden.store
"""

import argparse
import csv
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.golden.compare import METHODS, WORDS
from benchmarks.golden.runs import COMMIT, fetch_sources

__all__ = ["ATOL", "RTOL", "SMALL", "close", "stored_text", "verdict_values"]

RTOL, ATOL = 1e-4, 1e-5
"""How far a number may be from its stored value."""

SMALL: Mapping[str, tuple[str, tuple[str, ...], Mapping[str, Any]]] = {
    "mixture": (
        "image",
        ("mixture",),
        {
            "images": 200,
            "steps": 24,
            "bins": 16,
            "doubling": (10, 20, 40),
            "family_images": 200,
            "information_images": 200,
            "uturn_images": 100,
            "uturn_times": 3,
            "batch": 200,
            "resamples": 200,
            "draws": 99,
        },
    ),
    "heads": (
        "heads",
        (),
        {"prompts": 4, "tokens": 16, "resamples": 100, "shown_tokens": 6, "control_prompts": 2},
    ),
    "audit": (
        "audit",
        (),
        {
            "prompts": 16,
            "tokens": 24,
            "resamples": 100,
            "control_prompts": 4,
            "flow_rank": 16,
            "flow_close": 4,
            "rotation_rank": 3,
            "rotation_layers": 3,
        },
    ),
}
"""Small runs by name: the function of flowscope, its arguments, its settings."""

_ROOT = Path(__file__).resolve().parents[2]
_VALUES = _ROOT / "tests" / "golden" / "values"
_THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_PLAIN = {
    "ATEN_CPU_CAPABILITY": "default",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "MKL_CBWR": "COMPATIBLE",
    "OPENBLAS_CORETYPE": "Nehalem",
    "NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3 AVX512F AVX512_SKX",
}
_RUN = """
import json, sys
import torch
import flowscope
torch.set_num_threads(1)
function, arguments, settings, out = json.loads(sys.argv[1])
settings = {name: tuple(v) if isinstance(v, list) else v for name, v in settings.items()}
print(flowscope.__file__)
getattr(flowscope, function)(*arguments, out=out, **settings)
"""
_LARGEST_TABLE = 200


def stored_text(value: Any) -> str:
    """A value as it is stored: nine digits of a float, everything else as it is."""
    if isinstance(value, float | np.floating):
        return f"{float(value):.9g}"
    return "" if value is None or value is pd.NA else str(value)


def close(stored: str, value: Any, tolerance: float = 1.0) -> bool:
    """Whether a value is the stored one: floats nearly, everything else exactly."""
    text = stored_text(value)
    if stored == text:
        return True
    if not isinstance(value, float | np.floating):
        return False
    return bool(np.isclose(float(value), float(stored), tolerance * RTOL, tolerance * ATOL))


def verdict_values(verdict: Any) -> dict[str, Any]:
    """Decision, counts and numbers of a verdict, flat; what is not there is left out."""
    values: dict[str, Any] = {"decision": str(verdict.decision)}
    for name in ("statistic", "null"):
        measurement = getattr(verdict, name)
        if not hasattr(measurement, "n"):
            continue
        values |= {f"{name}.n": measurement.n, f"{name}.status": measurement.status}
        for k, value in enumerate(np.ravel(_array(measurement.values))):
            values[f"{name}.{k}"] = float(value)
    if isinstance(verdict.effect, float):
        values["effect"] = verdict.effect
    if hasattr(verdict.interval, "low"):
        values |= {"low": float(verdict.interval.low), "high": float(verdict.interval.high)}
    return values


def _array(values: Any) -> Any:
    return values if isinstance(values, np.ndarray) else np.empty(0)


def _made(name: str, source: Path, folder: Path, extra: Mapping[str, str]) -> Path:
    """Make a small run with the code of ``source``; returns its folder."""
    function, arguments, settings = SMALL[name]
    environment = {**os.environ, **_THREADS, **extra, "PYTHONPATH": str(source / "src")}
    environment |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    order = json.dumps([function, arguments, settings, str(folder)])
    ended = subprocess.run(
        [sys.executable, "-c", _RUN, order],
        **{"cwd": folder.parent, "env": environment, "capture_output": True, "text": True},
    )
    if ended.returncode or not ended.stdout.startswith(str(source)):
        raise SystemExit(f"{name} failed: {ended.stdout}\n{ended.stderr[-3000:]}")
    (run,) = (path.parent for path in folder.parent.rglob(f"{folder.name}/**/manifest.json"))
    return run


def _column_is_stable(name: str, first: pd.Series, second: pd.Series) -> bool:
    if name in WORDS | METHODS and not pd.api.types.is_numeric_dtype(first):
        return False
    return not name.endswith("_because") and all(
        close(stored_text(a), b, 0.1) for a, b in zip(first, second, strict=True)
    )


def _store_tables(first: Any, second: Any, folder: Path) -> list[str]:
    omitted = []
    for name in first.tables():
        frame, other = first.read_table(name), second.read_table(name)
        if len(frame) != len(other):
            omitted.append(name)
            continue
        columns = [c for c in frame if _column_is_stable(c, frame[c], other[c])]
        omitted += [f"{name}.{c}" for c in frame if c not in columns]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["row", *columns])
        rows = np.unique(
            np.linspace(0, len(frame) - 1, min(len(frame), _LARGEST_TABLE)).astype(int)
        )
        for k in rows:
            writer.writerow([k, *(stored_text(frame[c].iloc[k]) for c in columns)])
        (folder / f"{name}.csv").write_text(text.getvalue(), encoding="utf-8", newline="\n")
    return omitted


def _store_verdicts(first: Any, second: Any, folder: Path) -> list[str]:
    stored, omitted = {}, []
    for one, other in zip(first.read_verdicts(), second.read_verdicts(), strict=True):
        values, others = verdict_values(one), verdict_values(other)
        stable = {k: v for k, v in values.items() if close(stored_text(v), others.get(k), 0.1)}
        omitted += [f"{one.name}.{key}" for key in values if key not in stable]
        stored[one.name] = {key: stored_text(value) for key, value in stable.items()}
    document = json.dumps(stored, indent=1, ensure_ascii=False) + "\n"
    (folder / "verdicts.json").write_text(document, encoding="utf-8", newline="\n")
    return omitted


def main() -> None:
    from flowscope.records import Run

    parser = argparse.ArgumentParser(prog="python -m benchmarks.golden.store")
    parser.add_argument("--cache", type=Path, default=_ROOT / "out/golden", help=argparse.SUPPRESS)
    cache = parser.parse_args().cache.resolve()
    cache.mkdir(parents=True, exist_ok=True)
    source = fetch_sources(_ROOT, cache)
    origin: dict[str, Any] = {
        "commit": COMMIT,
        "versions": {name: version(name) for name in ("torch", "numpy", "transformers")},
        "machine": platform.machine(),
        "runs": {},
    }
    shutil.rmtree(_VALUES, ignore_errors=True)
    for name, (function, arguments, settings) in SMALL.items():
        with tempfile.TemporaryDirectory() as place:
            first = Run.open(_made(name, source, Path(place) / "first", {}))
            second = Run.open(_made(name, source, Path(place) / "second", _PLAIN))
            folder = _VALUES / name
            folder.mkdir(parents=True)
            omitted = _store_tables(first, second, folder)
            omitted += _store_verdicts(first, second, folder)
        origin["runs"][name] = {
            "function": function,
            "arguments": arguments,
            "settings": settings,
            "omitted": omitted,
        }
        print(f"{name}: left out {', '.join(omitted) or 'nothing'}")
    document = json.dumps(origin, indent=1) + "\n"
    (_VALUES / "origin.json").write_text(document, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
