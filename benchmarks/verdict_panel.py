"""What the verdicts P0 to P4 say of subjects whose answer is known, and of real models.

Question: what makes a verdict say *holds*, and what makes it say something else? Each subject is
turned into the tables that the judge of the audit reads, or audited as a whole, and the judge
decides. Subjects: those of ``known_subjects`` over 20 seeds; 40 small networks with random weights;
the bundled model as it is, untrained, and with its blocks in random order; any model that is named;
and pairs of halves of the prompts of one model.

    python -m benchmarks.verdict_panel --seeds 20 --random 40 --halves 5
    python -m benchmarks.verdict_panel --only real --model NAME=FOLDER --text NAME=STORIES.txt.gz

Every run is stored at once in ``benchmarks/results/verdict_panel.json``, and runs that are stored
are not repeated. ``--page`` writes the tables of ``docs/theory/what-holds-means.md`` and ends.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch

from benchmarks.known_subjects import SUBJECTS, verdicts_of
from benchmarks.panel_models import (
    audited,
    deep_model,
    opened,
    random_model,
    shuffled_blocks,
    story_texts,
    untrained,
)
from benchmarks.panel_runs import Job, PanelRuns, Row
from benchmarks.panel_tables import page_tables
from flowscope.models.loading import Loaded
from flowscope.models.prompts import packaged_texts
from flowscope.records import Verdict

RESULT = Path(__file__).parent / "results" / "verdict_panel.json"
PAGE = Path(__file__).parents[1] / "docs" / "theory" / "what-holds-means.md"
PARTS = ("known", "random", "deep", "real", "halves")
PROMPTS, TOKENS = 32, 48
RANDOM_PROMPTS, RANDOM_TOKENS = 16, 32
SHUFFLES = 3
FIRST = 100
"""First seed: rules were tried on smaller ones, so that these are an independent test."""

RUNS = PanelRuns(RESULT, PARTS)


def known_jobs(wanted: str, seeds: range) -> Iterator[Job]:
    """Subjects that are drawn, all of them at one seed before the next."""
    starts = tuple(wanted.split(","))
    for seed in seeds:
        for name in (name for name in SUBJECTS if name.startswith(starts)):
            yield Job("known", name, str(seed), partial(verdicts_of, name, seed))


def random_verdicts(made: Callable[[int], Loaded], seed: int) -> list[Verdict]:
    """Audit of a network with random weights."""
    texts = list(packaged_texts())[:RANDOM_PROMPTS]
    return audited(made(seed), texts, tokens=RANDOM_TOKENS, seed=seed)


def random_jobs(seeds: range) -> Iterator[Job]:
    """Networks with random weights."""
    for seed in seeds:
        name, loaded = random_model(seed)
        made = partial(random_verdicts, lambda _, loaded=loaded: loaded, seed)
        yield Job("random", name, str(seed), made)


def deep_jobs(runs: int) -> Iterator[Job]:
    """The gate on deep networks with random weights; forecasts and rotation are left out."""

    def gate(seed: int) -> list[Verdict]:
        texts = list(packaged_texts())[:RANDOM_PROMPTS]
        verdicts = audited(deep_model(seed), texts, tokens=RANDOM_TOKENS, flow_positions=0)
        return [verdict for verdict in verdicts if verdict.name == "P0"]

    for seed in range(runs):
        yield Job("deep", "Llama, 42 layers", str(seed), partial(gate, seed))


def real_jobs(models: dict[str, str], texts: dict[str, Path]) -> Iterator[Job]:
    """Trained models beside the same without training, and the bundled one out of order."""

    def verdicts(path: str, change: Callable[[Loaded], Loaded], file: Path | None) -> list[Verdict]:
        return audited(change(opened(path)), story_texts(file)[:PROMPTS], tokens=TOKENS)

    for name, path in models.items():
        file = texts.get(name)
        yield Job("real", name, "trained", partial(verdicts, path, lambda loaded: loaded, file))
        fresh = partial(untrained, seed=0)
        yield Job("real", name, "untrained", partial(verdicts, path, fresh, file))
        for seed in range(SHUFFLES if name == "bundled" else 0):
            mixed = partial(shuffled_blocks, seed=seed)
            yield Job("real", name, f"blocks shuffled {seed}", partial(verdicts, path, mixed, file))


def half_jobs(models: dict[str, str], texts: dict[str, Path], splits: int) -> Iterator[Job]:
    """Audits of two halves of 64 prompts of one model, over random splits."""

    def verdicts(path: str, file: Path | None, split: int, half: int) -> list[Verdict]:
        passages = story_texts(file)
        order = np.random.default_rng(split).permutation(len(passages))
        part = order[half * PROMPTS : (half + 1) * PROMPTS]
        return audited(opened(path), [passages[k] for k in part], tokens=TOKENS)

    for name, path in reversed(models.items()):
        for split in range(splits):
            for half in (0, 1):
                seed, file = f"{split}{'ab'[half]}", texts.get(name)
                yield Job("halves", name, seed, partial(verdicts, path, file, split, half))


def jobs(options: argparse.Namespace) -> Iterator[Job]:
    """Everything that is asked for."""
    models = {"bundled": "bundled", **dict(pair.split("=", 1) for pair in options.model)}
    texts = {name: Path(file) for name, file in (pair.split("=", 1) for pair in options.text)}
    wanted = options.only.split(",") if options.only else PARTS
    if "real" in wanted:
        yield from real_jobs(models, texts)
    if "known" in wanted:
        yield from known_jobs(options.known, range(options.first, options.first + options.seeds))
    if "random" in wanted:
        yield from random_jobs(range(options.first, options.first + options.random))
    if "deep" in wanted:
        yield from deep_jobs(options.deep)
    if "halves" in wanted:
        yield from half_jobs(models, texts, options.halves)


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
    parser.add_argument("--seeds", type=int, default=20, help="of every known subject")
    parser.add_argument("--first", type=int, default=FIRST, help="first seed of both")
    parser.add_argument("--known", default="", help="known subjects that start so, by commas")
    parser.add_argument("--random", type=int, default=40, help="networks with random weights")
    parser.add_argument("--deep", type=int, default=2, help="deep ones")
    parser.add_argument("--halves", type=int, default=5, help="random splits of the prompts")
    parser.add_argument("--only", default="", help=f"of {', '.join(PARTS)}, separated by commas")
    parser.add_argument("--model", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--text", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--page", action="store_true", help="write the tables of the page only")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for job in () if options.page else jobs(options):
        if RUNS.has(job.part, job.subject, job.seed):
            continue
        start = time.process_time()
        verdicts = job.verdicts()
        rows = RUNS.store(*job[:3], verdicts, time.process_time() - start)
        print(job.part, job.subject, job.seed, _short(rows), flush=True)
    tables = page_tables(RUNS.document())
    print("\n\n".join(f"{name}\n{table}" for name, table in tables.items()))
    if PAGE.is_file():
        write_page()


def _short(rows: dict[str, Row]) -> str:
    return ", ".join(f"{name} {row['outcome']} {row['effect']}" for name, row in rows.items())


if __name__ == "__main__":
    main()
