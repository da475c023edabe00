"""What the verdicts I1 to I3 say of samplers whose answer is known, and of random networks.

Question: what makes a verdict on a sampler say *holds*, and what makes it say something else?
Every subject is read by ``flowscope.image`` itself. Subjects: those of ``image_subjects`` over some
seeds; diffusion transformers of two sizes with random weights (500 images, 16 steps); the bundled
one as it is (40 images, 16 steps).

    python -m benchmarks.image_panel --seeds 20 --random 10
    python -m benchmarks.image_panel --only bundled

Every run is stored at once in ``benchmarks/results/image_panel.json``, and runs that are stored are
not repeated. ``--page`` writes the tables of ``docs/theory/what-holds-means.md`` and ends.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

import flowscope as fs
from benchmarks.image_subjects import EXPECTED, SETTINGS, SUBJECTS, random_network
from benchmarks.panel_runs import Job, PanelRuns, Row
from flowscope.records import Verdict

RESULT = Path(__file__).parent / "results" / "image_panel.json"
PAGE = Path(__file__).parents[1] / "docs" / "theory" / "what-holds-means.md"
PARTS = ("known", "random", "bundled")
OUTCOMES = ("holds", "fails", "uninformative", "abstains")
SIZES = {"DiT, 2 layers of 32": (32, 2), "DiT, 6 layers of 64": (64, 6)}
NETWORK: dict[str, Any] = {
    **SETTINGS, "images": 500, "steps": 16, "family_images": 64, "doubling": (4, 8), "batch": 500,
}  # fmt: skip
BUNDLED: dict[str, Any] = {
    **NETWORK, "images": 40, "family_images": 8, "lams": (0.0, 1.0), "rotation_images": 40,
    "batch": 40,
}  # fmt: skip

RUNS = PanelRuns(RESULT, PARTS)


def read(made: Callable[[], Any], settings: Mapping[str, Any], seed: int) -> list[Verdict]:
    """Verdicts of a run on a model."""
    with tempfile.TemporaryDirectory() as folder:
        source = made()
        given = () if source is None else (source,)
        result = fs.image(*given, out=f"{folder}/run", progress=False, seed=seed, **settings)
        return list(result.verdicts)


def network(width: int, layers: int, seed: int) -> list[Verdict]:
    """Verdicts of a run on a transformer with random weights."""
    from diffusers import DDPMScheduler

    settings = {**NETWORK, "scheduler": DDPMScheduler()}
    return read(partial(random_network, width, layers, seed), settings, seed)


def jobs(options: argparse.Namespace) -> Iterator[Job]:
    """Everything that is asked for, one seed of all subjects after the other."""
    wanted = options.only.split(",") if options.only else PARTS
    for seed in range(max(options.seeds, options.random)):
        for name, subject in SUBJECTS.items():
            if "known" not in wanted or seed >= round(subject.share * options.seeds):
                continue
            if options.known not in name:
                continue
            settings = {**SETTINGS, **subject.settings}
            yield Job("known", name, str(seed), partial(read, subject.made, settings, seed))
        for name, (width, layers) in SIZES.items():
            if "random" in wanted and seed < options.random:
                yield Job("random", name, str(seed), partial(network, width, layers, seed))
    if "bundled" in wanted:
        yield Job("bundled", "bundled", "0", partial(read, lambda: None, BUNDLED, 0))


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _line(rows: list[Row]) -> list[str]:
    effects = [row["effect"] for row in rows if row["effect"] is not None]
    counts = [str(sum(row["outcome"] == name for row in rows) or "·") for name in OUTCOMES]
    return [*counts, f"{median(effects):+.3f}" if effects else "–"]


def page_tables(runs: Mapping[str, Any]) -> dict[str, str]:
    """Tables by the mark of their place."""

    def rows(part: str, subject: str, verdict: str) -> list[Row]:
        return [run["verdicts"][verdict] for run in runs[part].get(subject, {}).values()]

    known = [
        [subject, verdict, EXPECTED[subject, verdict], *_line(rows("known", subject, verdict))]
        for verdict in ("I1", "I2", "I3")
        for subject in SUBJECTS
        if subject in runs["known"] and (subject, verdict) in EXPECTED
    ]
    others = [
        [subject, verdict, str(len(runs[part][subject])), *_line(rows(part, subject, verdict))]
        for part in ("random", "bundled")
        for subject in runs[part]
        for verdict in ("I1", "I2", "I3")
    ]
    end = [*OUTCOMES, "median effect"]
    return {
        "samplers": _table(["subject", "verdict", "right answer", *end], known),
        "networks of images": _table(["network", "verdict", "runs", *end], others),
    }


def write_page() -> None:
    """Write the tables of the page from the runs that are stored."""
    page = PAGE.read_text(encoding="utf-8")
    for name, table in page_tables(RUNS.document()).items():
        first, last = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
        before, mark, rest = page.partition(first)
        if not mark or last not in rest:
            raise SystemExit(f"{PAGE} has no place marked {first!r}.")
        page = before + first + table + last + rest.partition(last)[2]
    PAGE.write_text(page, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--seeds", type=int, default=20, help="of a known subject; slow ones take a share of them"
    )
    parser.add_argument("--known", default="", help="known subjects whose name holds this")
    parser.add_argument("--random", type=int, default=10, help="networks of each size")
    parser.add_argument("--only", default="", help=f"of {', '.join(PARTS)}, separated by commas")
    parser.add_argument("--page", action="store_true", help="write the tables of the page only")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for job in () if options.page else jobs(options):
        if RUNS.has(job.part, job.subject, job.seed):
            continue
        start = time.process_time()
        verdicts = job.verdicts()
        seconds = time.process_time() - start
        rows = RUNS.store(*job[:3], verdicts, seconds)
        said = ", ".join(f"{name} {row['outcome']} {row['effect']}" for name, row in rows.items())
        print(f"{job.part} {job.subject} {job.seed}: {said} ({seconds:.1f} s)", flush=True)
    print("\n\n".join(f"{name}\n{table}" for name, table in page_tables(RUNS.document()).items()))
    write_page()


if __name__ == "__main__":
    main()
