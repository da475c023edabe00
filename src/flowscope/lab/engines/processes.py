"""The engine ``processes``: workers on this machine, each a new Python with a part of the cores.

A worker on a GPU sees that GPU alone. It ends when the driver does: its standard input is a pipe
from the driver, which closes with it, also when it is killed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from flowscope.lab.engines.beside import Helpers, say, threads_each
from flowscope.lab.engines.choice import EngineChoice
from flowscope.lab.engines.plan import WORKERS
from flowscope.records.files import make_folder

__all__ = ["started", "visible_gpus", "workers_of"]

_PATIENCE = 5.0
_LAST = 300


@contextmanager
def started(choice: EngineChoice, run: Path, device: str) -> Iterator[Helpers]:
    """Start the workers beside the driver, and end those that are left when the driver ends."""
    gpus = visible_gpus() if device.startswith("cuda") else []
    workers = _fitting(workers_of(choice, gpus), choice, gpus)
    helpers = [
        _started(run, number, workers, _gpu(number, choice, gpus))
        for number in range(2, workers + 1)
    ]
    told: set[int] = set()

    def look() -> None:
        for number, (process, log) in enumerate(helpers, 2):
            if number not in told and process.poll() not in (None, 0):
                told.add(number)
                say(f"Worker {number} has ended: {_last_words(log)} The others go on.")

    try:
        yield Helpers(len(helpers), look)
        look()
    finally:
        for process, _ in helpers:
            _end(process)


def workers_of(choice: EngineChoice, gpus: list[str]) -> int:
    """Processes that measure: as asked, or one for each GPU, or two."""
    if choice.name == "local":
        return 1
    return choice.workers or max(int(len(gpus) / (choice.gpus_per_worker or 1)), 2)


def visible_gpus() -> list[str]:
    """GPUs of this process, by the names that ``CUDA_VISIBLE_DEVICES`` takes."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name.strip()]
    import torch

    return [str(index) for index in range(torch.cuda.device_count())]


def _fitting(workers: int, choice: EngineChoice, gpus: list[str]) -> int:
    """As many workers as the GPUs take; those that find none are left out, and this is said."""
    if not gpus:
        return workers
    most = max(int(len(gpus) / (choice.gpus_per_worker or 1)), 1)
    if workers > most:
        say(
            f"{workers} workers were asked for and {len(gpus)} GPUs take {most}: {most} are used. "
            "More fit with a smaller --gpus-per-worker."
        )
    return min(workers, most)


def _gpu(number: int, choice: EngineChoice, gpus: list[str]) -> str:
    """GPU of a worker; the driver is worker 1 and has the first."""
    if not gpus:
        return ""
    return gpus[min(int((number - 1) * (choice.gpus_per_worker or 1)), len(gpus) - 1)]


def _started(
    run: Path, number: int, workers: int, gpu: str
) -> tuple[subprocess.Popen[bytes], Path]:
    logs = run / WORKERS / "logs"
    make_folder(logs)
    log = logs / f"worker-{number}.txt"
    command = [sys.executable, "-m", "flowscope.lab.engines.working", str(run)]
    command += [f"{number}/{workers}", *(["cuda:0"] if gpu else [])]
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=file,
            env=_environment(workers, gpu),
            start_new_session=True,  # Ctrl-C is for the driver, which ends its workers
        )
    return process, log


def _environment(workers: int, gpu: str) -> Mapping[str, str]:
    threads = str(threads_each(workers))
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    quiet = {"TQDM_DISABLE": "1", "TOKENIZERS_PARALLELISM": "false"}
    found = sys.path if "PYTHONPATH" in os.environ else []
    path = {"PYTHONPATH": os.pathsep.join(part for part in found if part)} if found else {}
    seen = {"CUDA_VISIBLE_DEVICES": gpu} if gpu else {}
    return {**os.environ, **dict.fromkeys(names, threads), **quiet, **path, **seen}


def _last_words(log: Path) -> str:
    with suppress(OSError):
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        if lines:
            return lines[-1][-_LAST:]
    return "it said nothing."


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()  # the worker ends itself
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
