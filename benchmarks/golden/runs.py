"""The commands whose results are compared, and how they are run on one side or the other.

The four studies and the mixture write every table that flowscope can write. Three short commands
add the JSON documents that no study prints, and exit code 3.
"""

import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

__all__ = ["COMMIT", "RUNS", "Command", "Result", "execute", "fetch_sources", "remembered"]

COMMIT: str = tomllib.loads((Path(__file__).parent / "reference.toml").read_text("utf-8"))[
    "reference"
][-1]["commit"]
"""The version whose numbers are the reference: the last entry of ``reference.toml``."""

_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "COLUMNS": "80",
}
_DONE, _ABSTAINED = 0, 3


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command: its name in the list, and its arguments."""

    name: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one command left: its run folder, its JSON document, its exit code, its seconds."""

    folder: Path
    document: Any
    code: int
    seconds: float


def _settings(group: str, **values: object) -> tuple[str, ...]:
    """Arguments ``--set group.name=value``."""
    prefix = f"{group}." if group else ""
    pairs = (f"{prefix}{name}={json.dumps(value)}" for name, value in values.items())
    return tuple(part for pair in pairs for part in ("--set", pair))


RUNS = (
    Command(
        name="track_t",
        arguments=("reproduce", "track_t", "--prompts", "20", "--tokens", "32"),
    ),
    Command(
        name="diffusion_attention",
        arguments=(
            *("reproduce", "diffusion_attention", "--prompts", "8", "--tokens", "48"),
            *_settings("heads", shown_tokens=12),
        ),
    ),
    Command(
        name="synchronization_gap",
        arguments=(
            *("reproduce", "synchronization_gap"),
            *_settings("sync", labels=[8, 0], couplings=[1.0]),
        ),
    ),
    Command(
        name="track_i",
        arguments=(
            *("reproduce", "track_i"),
            *_settings("image", images=20, steps=8, doubling=[2, 4, 8], family_images=8),
            *_settings("image", rank=3, rotation_times=2, information_images=10),
            *_settings("image", uturn_images=8, uturn_times=4),
        ),
    ),
    Command(
        name="mixture",
        arguments=(
            *("image", "mixture", "--images", "1024", "--steps", "50", "--doubling", "50,100,200"),
            *_settings("", family_images=1024, information_images=512, uturn_images=512),
            *_settings("", batch=1024),
        ),
    ),
    Command(
        name="audit",
        arguments=("audit", "--prompts", "8", "--tokens", "16"),
    ),
    Command(
        name="heads",
        arguments=(
            *("heads", "--chain", "quasi-stationary", "--prompts", "4", "--tokens", "16"),
            *_settings("", dials=False, shown_tokens=6),
        ),
    ),
    Command(
        name="sync",
        arguments=(
            *("sync", "--pairs", "4", "--steps", "6", "--couplings", "1"),
            *_settings("", interventions=6, band=1, propagation=False),
        ),
    ),
)


def fetch_sources(root: Path, cache: Path, commit: str = COMMIT) -> Path:
    """The version of a commit, written beside the working tree once; returns its folder."""
    folder = cache / f"source-{commit[:7]}"
    if folder.is_dir():
        return folder
    known = subprocess.run(
        ["git", "-C", str(root), "cat-file", "-e", f"{commit}^{{commit}}"], capture_output=True
    )
    if known.returncode:
        raise SystemExit(
            f"This clone has no commit {commit[:7]}, the version to compare with: it is shallow, "
            "or no git repository. Fetch the whole history (git fetch --unshallow) and try again."
        )
    archive = subprocess.run(
        ["git", "-C", str(root), "archive", "--format=tar", commit], capture_output=True, check=True
    )
    unfinished = cache / f".source-{commit[:7]}-{os.getpid()}"
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as members:
        members.extractall(unfinished, filter="data")
    try:
        unfinished.rename(folder)
    except OSError:  # another process was faster
        shutil.rmtree(unfinished)
    return folder


def execute(command: Command, checkout: Path, folder: Path) -> Result:
    """Run a command with the code of a checkout, on one thread, its results below ``folder``.

    Raises
    ------
    RuntimeError
        The command ends with another exit code than 0 or 3, or another flowscope was imported.
    """
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "runs").mkdir(parents=True)
    environment = {**os.environ, **_ENVIRONMENT, "PYTHONPATH": str(checkout / "src")}
    where = subprocess.run(
        [sys.executable, "-c", "import flowscope; print(flowscope.__file__)"],
        **{"cwd": folder, "env": environment, "capture_output": True, "text": True},
    )
    if not where.stdout.startswith(str(checkout / "src")):
        raise RuntimeError(
            f"expected the flowscope of {checkout}, python imports {where.stdout or where.stderr}"
        )
    call = [sys.executable, "-m", "flowscope.cli", *command.arguments, "--json"]
    start = time.perf_counter()
    ended = subprocess.run(
        [*call, "--out", str(folder / "runs")],
        **{"cwd": folder, "env": environment, "capture_output": True, "text": True},
    )
    seconds = time.perf_counter() - start
    if ended.returncode not in (_DONE, _ABSTAINED):
        tail = "\n".join((ended.stdout[-2000:] + ended.stderr[-4000:]).splitlines()[-20:])
        raise RuntimeError(f"{command.name} of {checkout} ended with {ended.returncode}:\n{tail}")
    (folder / "document.json").write_text(ended.stdout, encoding="utf-8")
    about = {"code": ended.returncode, "seconds": seconds}
    (folder / "result.json").write_text(json.dumps(about), encoding="utf-8")
    return _opened(folder)


def remembered(command: Command, checkout: Path, cache: Path) -> Result:
    """The result of the reference version; run once per machine, libraries and command."""
    folder = cache / "old" / f"{command.name}-{_key(command)}"
    if not (folder / "result.json").is_file():
        execute(command, checkout, folder)
    return _opened(folder)


def _opened(folder: Path) -> Result:
    about = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    document = json.loads((folder / "document.json").read_text(encoding="utf-8"))
    (run,) = (path.parent for path in (folder / "runs").glob("*/manifest.json"))
    return Result(folder=run, document=document, **about)


def _key(command: Command) -> str:
    versions = sorted({f"{known.name}=={known.version}" for known in distributions()})
    parts = [COMMIT, command.arguments, _ENVIRONMENT, platform.python_version(), versions, _cpu()]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


def _cpu() -> list[str]:
    """Model and abilities of the processor, which kernels are chosen by."""
    file = Path("/proc/cpuinfo")
    if not file.is_file():
        return [platform.machine(), platform.processor()]
    lines = (line.split(":", 1) for line in file.read_text().splitlines() if ":" in line)
    return sorted({b.strip() for a, b in lines if a.strip() in ("model name", "model", "flags")})
