"""Whether run folders survive kills at random moments and several writers at once.

Kills: each command is started with small settings and killed (SIGKILL) at random moments, two or
three times in one folder; then it runs to its end. Every table, array, shard, measurement and
verdict must be, byte for byte, what the command writes when nobody disturbs it.

Writers: two to four processes with seeds of their own start at once on one folder, and in every
third trial the one that holds the folder is killed. Exactly one may finish a run, the others must
be told who writes, and the folder must be, byte for byte, that of one seed, under a manifest that
names this seed. A reader lists and opens the folder all the while.

Processes are forked from one that has loaded the libraries, so that a kill falls into the work and
not into the imports. Run: ``python -m benchmarks.attack.folders``; writes
``benchmarks/results/attack_folders.json`` and ends with 1 if a folder was mixed or a byte differed.
"""

import argparse
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import diffusers
import torch

import flowscope as fs
from benchmarks.machine import described
from flowscope.errors import FlowscopeError, RecordError
from flowscope.lab.display.listing import runs_below
from flowscope.lab.running.lock import writer_of
from flowscope.records import Run

RESULT = Path(__file__).parents[1] / "results" / "attack_folders.json"
READING = {"prompts": 3, "tokens": 10, "batch": 1, "resamples": 20, "control_prompts": 1}
SETTINGS: dict[str, dict[str, Any]] = {
    "audit": {
        **READING, "curvature_pairs": 1, "temperatures": (2.0,), "key_norms": (0.0,),
        "evi_positions": 1, "flow_positions": 4, "flow_rank": 4, "rotation_rank": 2,
        "rotation_layers": 2,
    },
    "heads": {
        **READING, "flux": (0.0,), "metric": (), "exact": (), "alpha": (), "temperatures": (),
        "squares": (),
    },
    "sync": {
        "pairs": 8, "steps": 6, "couplings": (0.2, 1.0), "interventions": 6, "resamples": 20,
        "draws": 39, "kept": 3, "band": 1, "batch": 4, "propagation": False,
    },
    "image": {
        "source": "mixture", "images": 64, "steps": 5, "doubling": (2, 4), "lams": (0.0, 1.0),
        "bins": 8, "family_images": 32, "rotation_times": 1, "rank": 2, "rotation_images": 20,
        "information_images": 9, "uturn_images": 8, "uturn_times": 2, "resamples": 20,
        "draws": 39, "batch": 8,
    },
}  # fmt: skip
FORK = multiprocessing.get_context("fork")
LONGEST = 600


@dataclass
class Counts:
    """What one command or one number of writers went through."""

    tried: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def note(self, what: str, number: int = 1) -> None:
        """Count something."""
        self.tried[what] += number

    def to_json(self) -> dict[str, Any]:
        """Counts and what went wrong."""
        return {**self.tried, "wrong": self.wrong[:20]}


def measure(name: str, folder: Path, seed: int = 0) -> None:
    """Run one command with small settings; the denoiser of ``sync`` is made here."""
    given = dict(SETTINGS[name])
    if name == "sync":
        torch.manual_seed(0)
        given["source"] = diffusers.DiTTransformer2DModel(
            num_attention_heads=2, attention_head_dim=8, in_channels=3, out_channels=3,
            num_layers=2, sample_size=8, patch_size=2, num_embeds_ada_norm=3,
        ).eval()  # fmt: skip
        given |= {"scheduler": diffusers.DDPMScheduler(), "encoder": _pooled}
        given["classes"] = ("cat", "dog", "owl")
    getattr(fs, name)(out=folder, seed=seed, progress=False, **given)


def _pooled(images: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.adaptive_avg_pool2d(images, 2).flatten(1)


def contents(folder: Path) -> dict[str, bytes]:
    """Bytes of every file of a run but the manifest, which says when it was made."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "manifest.json")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def differing(folder: Path, whole: dict[str, bytes]) -> list[str]:
    """Names of the files of a folder that are not as they should be."""
    found = contents(folder)
    return sorted(n for n in found.keys() | whole.keys() if found.get(n) != whole.get(n))


def _child(name: str, folder: Path, seed: int, answers: Any) -> None:
    warnings.simplefilter("ignore")
    try:
        measure(name, folder, seed)
        answers.put((seed, ""))
    except RecordError as error:
        answers.put((seed, str(error)))


def started(name: str, folder: Path, seed: int = 0) -> tuple[Any, Any]:
    """A process that runs a command, and where it answers."""
    answers = FORK.SimpleQueue()
    child = FORK.Process(target=_child, args=(name, folder, seed, answers))
    child.start()
    return child, answers


def attack_by_kills(name: str, home: Path, kills: int, rng: random.Random) -> Counts:
    """Kill a command at random moments, resume it, and compare what it leaves."""
    counts = Counts()
    measure(name, home / "warm")
    begin = time.perf_counter()
    child, answers = started(name, home / "whole")
    child.join(LONGEST)
    lasting = time.perf_counter() - begin
    assert answers.get() == (0, "")
    whole, chain = contents(home / "whole"), 0
    while counts.tried["kills"] < kills:
        folder, chain = home / f"chain {chain}" / "run", chain + 1
        for _ in range(rng.choice((2, 3))):
            child, answers = started(name, folder)
            child.join(rng.uniform(0, lasting))
            if child.is_alive():
                os.kill(child.pid, signal.SIGKILL)
                counts.note("kills")
                counts.note("locks left", int((folder / "writer.lock").exists()))
                counts.note("partial files left", len(list(folder.rglob(".*.partial"))))
            child.join(LONGEST)
        child, answers = started(name, folder)
        child.join(LONGEST)
        _, problem = answers.get() if child.exitcode == 0 else (0, f"exit code {child.exitcode}")
        counts.note("folders")
        wrong = [problem] if problem else differing(folder, whole)
        wrong += list(Run.open(folder).strange_files()) if not problem else []
        counts.note("byte differences", len(wrong))
        counts.wrong += [f"{name}: {what}" for what in wrong]
    return counts


def attack_by_writers(name: str, home: Path, writers: int, trials: int) -> Counts:
    """Start several writers at once on one folder; look at the folder while they write."""
    counts, whole = Counts(), {}
    for seed in range(writers):
        measure(name, home / f"seed {seed}", seed)
        whole[seed] = contents(home / f"seed {seed}")
    for trial in range(trials):
        place = home / f"trial {trial}"
        folder = place / "run"
        pairs = [started(name, folder, seed) for seed in range(writers)]
        if trial % 3 == 2:
            counts.note("holders killed", int(_kill_holder(folder, [p[0] for p in pairs])))
        while any(child.is_alive() for child, _ in pairs):
            counts.note("times read")
            _read(place, counts)
            time.sleep(0.02)
        for child, _ in pairs:
            child.join()
        ended = [answers.get() for child, answers in pairs if child.exitcode == 0]
        finished = [seed for seed, problem in ended if not problem]
        refused = [problem for _, problem in ended if problem]
        counts.note("trials")
        counts.note("finished", len(finished))
        counts.note(
            "refused because of another writer", sum("being written by" in p for p in refused)
        )
        counts.note("refused because of another seed", sum("seed is" in p for p in refused))
        told = [p for p in refused if "being written by" not in p and "seed is" not in p]
        counts.wrong += [f"not told why: {problem}" for problem in told]
        _judge(name, folder, finished, whole, counts)
    return counts


def _kill_holder(folder: Path, children: list[Any]) -> bool:
    """Kill the process that holds a folder, a moment after it took it."""
    for _ in range(2000):
        holder = writer_of(folder)
        for child in children:
            if f"process {child.pid} on" in holder:
                time.sleep(0.05)
                os.kill(child.pid, signal.SIGKILL)
                return True
        time.sleep(0.005)
    return False


def _read(place: Path, counts: Counts) -> None:
    """List the runs and open them as a reader does; a writer must not be in the way."""
    try:
        for summary in runs_below(place):
            if summary.state == "damaged":
                raise RecordError(summary.because)
    except FlowscopeError as error:
        counts.note("reads that failed")
        counts.wrong.append(f"reader: {error}")


def _judge(
    name: str, folder: Path, finished: list[int], whole: dict[int, dict[str, bytes]], counts: Counts
) -> None:
    """Whether a folder is that of one seed, after a killed holder's seed was finished."""
    begun = (folder / "manifest.json").exists()  # or the holder was killed before it wrote one
    seed = int(Run.open(folder).read_manifest().config_resolved["seed"]) if begun else 0
    if not finished:
        child, answers = started(name, folder, seed)
        child.join(LONGEST)
        finished = [seed] if answers.get() == (seed, "") else []
        counts.note("resumed")
    manifest = Run.open(folder).read_manifest()
    alien = differing(folder, whole[seed])
    alien += list(Run.open(folder).strange_files())
    single = finished == [seed] == [manifest.seeds["bootstrap"]]
    counts.note("mixed folders", int(bool(alien) or not single))
    if alien or not single:
        counts.wrong.append(f"{folder.parent.name}: finished {finished}, seed {seed}, {alien}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--writers", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--commands", nargs="+", default=list(SETTINGS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    begin, rng = time.perf_counter(), random.Random(options.seed)
    kills: dict[str, Any] = {}
    writers: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        for name in options.commands:
            kills[name] = attack_by_kills(name, Path(place) / name, options.kills, rng).to_json()
            print(name, json.dumps(kills[name]), flush=True)
        for number in options.writers:
            home = Path(place) / f"{number} writers"
            counts = attack_by_writers("image", home, number, options.trials)
            writers[str(number)] = counts.to_json()
            print(number, "writers", json.dumps(writers[str(number)]), flush=True)
    total = {
        "kills": sum(each.get("kills", 0) for each in kills.values()),
        "byte differences": sum(each["byte differences"] for each in kills.values()),
        "trials of writers": sum(each.get("trials", 0) for each in writers.values()),
        "mixed folders": sum(each.get("mixed folders", 0) for each in writers.values()),
        "wrong": sum(len(each["wrong"]) for each in (*kills.values(), *writers.values())),
    }
    record = {
        "question": __doc__.splitlines()[0] if __doc__ else "",
        "machine": described(),
        "total": total,
        "kills": kills,
        "writers": writers,
        "seconds": time.perf_counter() - begin,
    }
    options.out.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n")
    print(json.dumps(total))
    return int(bool(total["byte differences"] or total["mixed folders"] or total["wrong"]))


if __name__ == "__main__":
    sys.exit(main())
