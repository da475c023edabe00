"""How often the rules on samplers decide wrongly where the truth is known.

Question: with a nominal error of 5 %, how often does a rule of ``flowscope image`` decide against
the truth? Each cell calls the functions that the product calls, on synthetic counts and fields.

Parity: 64 groups of images, 4,000 values each, 16 bins, 6 times; runs of K and 2K steps share most
of their values, flow and SDE none. The truth is an excess of 0 or of exactly .02 at all times.
Slope: differences that fall as 1/K over 64 images, normal, exponential or lognormal. Rotation: a
linear
score in two coordinates with a rotation of 0 or of exactly .01 (the bound of the null) or .05 (the
bound of *holds*) in two windows, 100 images.

Run: ``python -m benchmarks.image_calibration``; writes its result,
``benchmarks/results/image_calibration.json``, and the tables of ``docs/theory/calibration.md``.
``--repeats`` changes the number of runs. A cell that is stored is not repeated.
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from benchmarks.machine import described
from flowscope.evidence import simultaneous
from flowscope.flows.hodge import Settings, rotation_presence, rotation_reading
from flowscope.flows.sampling import doubling_slope, step_budget
from flowscope.instruments.image.parity import LIMIT
from flowscope.instruments.image.parity.budget_table import budget_table_of

RESULT = Path(__file__).parent / "results" / "image_calibration.json"
PAGE = Path(__file__).parents[1] / "docs" / "theory" / "calibration.md"
GROUPS, VALUES, BINS, TIMES = 64, 4000, 16, 6
SHARED = 0.8
STEPS = (4, 8, 16)
IMAGES = 64
WINDOWS, ROTATION_IMAGES = 2, 100

Rates = dict[str, float]


def counts(law: NDArray[np.float64], rng: np.random.Generator, size: int) -> NDArray[np.int64]:
    """Counts of groups at all times."""
    return rng.multinomial(size, law, size=(GROUPS, TIMES))[:, :, None]


def parity_run(excess: float, budget: float, seed: int) -> pd.DataFrame:
    """Table of a run whose excess is known: the steps move either sampler by half of the budget."""
    rng = np.random.default_rng(seed)
    law = np.full(BINS, 1 / BINS)
    lean = np.tile([1.0, -1.0], BINS // 2) / BINS
    change = np.repeat([1.0, -1.0], BINS // 2) / BINS  # in other bins' directions
    far = excess + budget
    fine = {"flow": law + far * lean, "sde": law - far * lean}
    runs = {}
    for name, own in fine.items():
        shared = counts(own, rng, round(SHARED * VALUES))
        rest = VALUES - round(SHARED * VALUES)
        runs[f"fine_{name}"] = shared + counts(own, rng, rest)
        # The coarse run has the same values but for some, and those carry the whole change.
        moved = own + budget * VALUES / rest * change
        runs[name] = shared + counts(moved, rng, rest)
    tensors = {name: torch.from_numpy(array) for name, array in runs.items()}
    found = step_budget(**tensors, draws=39, generator=torch.Generator().manual_seed(seed))
    places = pd.DataFrame({"step": range(TIMES), "time": 0, "log_snr": 0.0})
    return budget_table_of(found, places, seed=seed)


def parity_rates(excess: float, budget: float, repeats: int) -> Rates:
    """Shares of runs that would fail and hold."""
    fails = holds = 0
    for seed in range(repeats):
        table = parity_run(excess, budget, seed)
        fails += table["excess_low"].max() > LIMIT
        holds += table["excess_high"].max() < LIMIT
    return {"fails": fails / repeats, "holds": holds / repeats}


def slope_rates(law: str, spread: float, repeats: int) -> Rates:
    """Share of resolved slopes whose interval misses −1, and share that is not resolved."""
    rng = np.random.default_rng(0)
    missed = lost = 0
    for _ in range(repeats):
        common = {
            "normal": lambda: rng.standard_normal((IMAGES, 1)),
            "exponential": lambda: rng.exponential(size=(IMAGES, 1)) - 1,
            "lognormal": lambda: (np.exp(rng.standard_normal((IMAGES, 1))) - np.exp(0.5)) / 2.16,
        }[law]()
        rows = 1 + spread * (common + 0.5 * rng.standard_normal((IMAGES, 3))) / 1.12
        found = doubling_slope(rows / np.array(STEPS), STEPS)
        lost += found.status != "ok"
        missed += found.status == "ok" and not found.low <= -1 <= found.high
    return {"misses": missed / max(1, repeats - lost), "unresolved": lost / repeats}


def rotation_rates(share: float, repeats: int) -> Rates:
    """Shares of runs whose p over windows is at most .05, and whose highs all lie below .05."""
    g = torch.Generator().manual_seed(0)
    rejected = holds = 0
    for seed in range(repeats):
        readings = [_reading(share, g, seed) for _ in range(WINDOWS)]
        controls = np.array([one.control for one in readings])
        pseudo = np.stack([one.normalised.pseudo_values.numpy() for one in readings], 1)
        joint = simultaneous(pseudo - controls, seed=seed).joint
        rejected += rotation_presence(readings).p <= 0.05
        holds += bool(np.max(joint.high) < 0.05)  # type: ignore[union-attr]
    return {"p ≤ .05": rejected / repeats, "holds": holds / repeats}


def _reading(share: float, g: torch.Generator, seed: int):  # type: ignore[no-untyped-def]
    x = torch.randn(2 * ROTATION_IMAGES, 2, generator=g).double() * torch.tensor([1.0, 0.5])
    smooth = -x * torch.tensor([1.0, 4.0])
    beyond = smooth - (smooth * x).sum() / x.square().sum() * x
    turn = torch.stack([-2 * x[:, 1], 0.5 * x[:, 0]], 1)
    # Energies of the law, not of the sample: E|beyond|² = 1.8, E|turn|² = 1.25.
    size = (1.8 / 1.25 * share / (1 - share)) ** 0.5
    noise = 0.5 * torch.randn(2 * ROTATION_IMAGES, 2, generator=g)
    return rotation_reading(
        x, beyond + size * turn + noise, groups=torch.arange(ROTATION_IMAGES).repeat(2), seed=seed,
        degree=2, settings=Settings(splits=2, draws=199, blocks=32),
    )  # fmt: skip


def tables(record: dict[str, dict[str, Rates]]) -> dict[str, str]:
    """Tables by the mark of their place."""
    made = {}
    for name, cells in record.items():
        heads = [head for head in next(iter(cells.values())) if head != "runs"]
        lines = [["in %", *heads], ["---"] * (1 + len(heads))]
        lines += [
            [cell, *(f"{100 * rates[h]:.1f}" for h in heads)] for cell, rates in cells.items()
        ]
        made[name] = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return made


def write_page(record: dict[str, dict[str, Rates]]) -> None:
    """Write the tables into their places."""
    page = PAGE.read_text(encoding="utf-8")
    for name, table in tables(record).items():
        first, last = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
        before, mark, rest = page.partition(first)
        if not mark or last not in rest:
            raise SystemExit(f"{PAGE} has no place marked {first!r}.")
        page = before + first + table + last + rest.partition(last)[2]
    PAGE.write_text(page, encoding="utf-8")


CELLS: dict[str, dict[str, Callable[[int], Rates]]] = {
    "excess over step errors": {
        "excess 0, step errors 0": partial(parity_rates, 0.0, 0.0),
        "excess 0, step errors .04": partial(parity_rates, 0.0, 0.04),
        "excess .02, step errors 0": partial(parity_rates, LIMIT, 0.0),
        "excess .02, step errors .04": partial(parity_rates, LIMIT, 0.04),
        "excess .1, step errors .04": partial(parity_rates, 0.1, 0.04),
    },
    "slope of step errors": {
        f"{law}, spread {spread:g}": partial(slope_rates, law, spread)
        for law in ("normal", "exponential", "lognormal")
        for spread in (0.3, 1.0, 2.0)
    },
    "rotation of a score": {
        f"rotation {share:g}": partial(rotation_rates, share) for share in (0.0, 0.01, 0.05)
    },
}


def stored() -> dict[str, Any]:
    """The record of all cells so far."""
    if RESULT.is_file():
        record: dict[str, Any] = json.loads(RESULT.read_text(encoding="utf-8"))
        return record
    question = __doc__.splitlines()[0] if __doc__ else ""
    rates: dict[str, dict[str, Rates]] = {name: {} for name in CELLS}
    return {"question": question, "machine": described(), "processor_seconds": 0.0, "rates": rates}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--page", action="store_true", help="write the tables of the page only")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name, cells in CELLS.items():
        for cell, rates in cells.items():
            record = stored()
            if options.page or cell in record["rates"][name]:
                continue
            start = time.process_time()
            record["rates"][name][cell] = {**rates(options.repeats), "runs": options.repeats}
            record["processor_seconds"] += round(time.process_time() - start, 1)
            text = json.dumps(record, indent=1, ensure_ascii=False)
            RESULT.write_text(text + "\n", encoding="utf-8")
            print(name, cell, record["rates"][name][cell], flush=True)
    write_page(stored()["rates"])


if __name__ == "__main__":
    main()
