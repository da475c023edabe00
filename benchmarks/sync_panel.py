"""What the verdicts R1 and R2 say of subjects whose answer is known, and of random weights.

Question: what makes R1 and R2 say *holds*, and what makes them say something else? R1 runs the
protocol of the instrument on models with an exact score (``known_images``); R2 is judged on
differences whose change is planted. Random weights are whole runs of ``flowscope sync`` on small
diffusion transformers.

    python -m benchmarks.sync_panel --seeds 20 --gaussian 50 --random 20 --repeats 1000

Runs are stored in ``benchmarks/results/sync_panel.json`` and not repeated. ``--page`` writes the
tables of ``docs/theory/what-holds-means.md`` and ``docs/theory/calibration.md`` and ends.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import diffusers
import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

import flowscope as fs
from benchmarks.known_images import SUBJECTS, order_of
from benchmarks.panel_runs import PanelRuns, Row
from flowscope.instruments.sync.commitment.order_rule import Order, decision_steps
from flowscope.instruments.sync.config import SyncConfig
from flowscope.instruments.sync.internal_gap import GAP
from flowscope.instruments.sync.internal_gap.judge import judge_internal_gap
from flowscope.instruments.sync.internal_gap.tables import familywise, gap_arrays
from flowscope.instruments.sync.internal_gap.twins import twin_arrays
from flowscope.probes import Arrays
from flowscope.records import Unavailable, Verdict
from flowscope.replica import ExchangeNull, LayerGaps, gap_beyond_twins

RESULT = Path(__file__).parent / "results" / "sync_panel.json"
DOCS = Path(__file__).parents[1] / "docs" / "theory"
OUTCOMES = ("holds", "fails", "uninformative", "abstains")
PAIRS, STEPS, FINALS, BAND, TWINS = 24, 16, 128, 6, 5
EXPECTED = {
    "Gaussian, white": "no verdict",
    "Gaussian, red": "no verdict",
    "Gaussian, blue": "no verdict",
    "Gaussian, uneven": "no verdict",
    "coarse patterns, Gaussian detail": "holds",
    "patterns of all scales": "fails",
    "no change": "no verdict",
    "weak modes keep more": "holds",
    "weak modes keep less": "fails",
    "weak modes keep less, 64 pairs": "fails",
    "no change, 8 pairs": "uninformative",
    "the latents change, the layers do not add": "no verdict",
    "networks differ": "no verdict",
}
SIZES = {
    "DiT, 2 layers of 32": (2, 2, 1.0),
    "DiT, 2 layers of 32, weights × 2": (2, 2, 2.0),
    "DiT, 6 layers of 64": (6, 4, 1.0),
    "DiT, 6 layers of 64, weights × 2": (6, 4, 2.0),
}
"""Layers, heads, and factor of the weights of the blocks."""


RUNS = PanelRuns(RESULT, ("known", "random", "levels"))


def drawn_network(
    kind: str, seed: int, network: int, *, layers: int, pairs: int, tilt: float, draws: int = 199
) -> Arrays:
    """Reading of drawn differences: latents and layers, with or without a planted change.

    Networks of one seed meet the same pairs: most of their differences is common to them.
    """
    shared, rng = np.random.default_rng(seed), np.random.default_rng([seed, network])
    width = 14
    size, late = np.exp(-0.35 * np.arange(width)), np.arange(width) >= width // 2
    common = shared.standard_normal((2, 1, pairs, width))
    latents = 0.8 * common + 0.6 * shared.standard_normal((2, 1, pairs, width))
    inside = 0.8 * common + 0.6 * rng.standard_normal((2, layers, pairs, width))
    first, noise = size * np.concatenate([latents, inside], 1)
    later = 0.6 * first + 0.8 * noise
    if "latents" in kind:
        later *= np.exp(0.3 * late)
    later[1:] *= np.exp(0.5 * tilt * late)
    stacked = np.concatenate([first, later], 1)
    grams = stacked @ stacked.transpose(0, 2, 1)
    reading = {"clock": np.array([0]), "latent_gram": grams[:1], "clock_gram": grams[1:, None]}
    return gap_arrays(reading, 0, SyncConfig(pairs=pairs, band=min(BAND, pairs // 4), draws=draws))


def differences(kind: str, seed: int, layers: int = 2, draws: int = 199) -> Verdict:
    """R2 on drawn differences of a model and of its shuffled twins."""
    rng = np.random.default_rng([seed, 99])
    pairs = next((n for n in (8, 64) if f", {n} pairs" in kind), PAIRS)
    spread = 0.5 if "networks differ" in kind else 0.0
    own, *others = spread * rng.standard_normal(1 + TWINS)
    own += 1.2 if "more" in kind else -1.2 if "less" in kind else 0.0
    shape = {"layers": layers, "pairs": pairs, "draws": draws}
    arrays = drawn_network(kind, seed, 0, tilt=own, **shape)
    twins = [drawn_network(kind, seed, 1 + k, tilt=x, **shape) for k, x in enumerate(others)]
    arrays |= twin_arrays(arrays, twins)
    return judge_internal_gap(arrays, layer_rows(arrays), claim=GAP, seed=0)


def layer_rows(arrays: Arrays) -> pd.DataFrame:
    """What the judge reads of the single layers, from the draws that the mean is judged by."""
    bands = np.quantile(arrays["draws"], [0.025, 0.975], axis=1).T
    nulls = [
        ExchangeNull(observed=float(value), draws=draws, p_value=1.0, band=(low, high), level=0.95,
                     scale=1.0)
        for value, draws, (low, high) in zip(
            arrays["observed"], arrays["draws"], bands, strict=True
        )
    ]  # fmt: skip
    rows = {"layer": arrays["layer"], "log_gap": arrays["observed"], "status": "ok"}
    rows |= {"null_low": bands[:, 0], "null_high": bands[:, 1], "because": ""}
    return pd.DataFrame({**rows, "p_all": [1.0, *familywise(nulls[1:])]})


def random_weights(name: str, seed: int) -> list[Verdict]:
    """A whole run with one coupling on a small diffusion transformer that was never trained."""
    layers, heads, factor = SIZES[name]
    torch.manual_seed(seed)
    model = diffusers.DiTTransformer2DModel(
        num_attention_heads=heads, attention_head_dim=16, in_channels=1, out_channels=1,
        num_layers=layers, sample_size=16, patch_size=2, num_embeds_ada_norm=3,
        norm_num_groups=8 if heads * 16 % 8 == 0 else 1,
    ).eval()  # a network in training mode drops class labels at random  # fmt: skip
    with torch.no_grad():
        for weight in model.get_submodule("transformer_blocks").parameters():
            weight.mul_(factor if weight.dim() > 1 else 1.0)
    with tempfile.TemporaryDirectory() as folder:
        found = fs.sync(
            model, scheduler=diffusers.DDPMScheduler(), classes=("a", "b", "c"), out=folder,
            pairs=PAIRS, steps=STEPS, finals=2 * PAIRS, couplings=(0.5,), propagation=False,
            kept=2, seed=seed,
            encoder=lambda images: images.flatten(1) + 1e-3,
        )  # fmt: skip
        return list(found.verdicts)


def order_level(seed: int, size: float) -> tuple[bool, bool]:
    """Whether R1's interval misses, and lies above, a known excess: drawn distances, no network.

    Distances of a pair are gamma variables that share half of their variance over the steps; the
    model's coarse decision lies ``size`` steps before the control's.
    """
    rng = np.random.default_rng(seed)
    steps = np.linspace(0, STEPS, 7)
    curves = 3

    def falling(middle: float) -> NDArray[np.float64]:
        mean = 1 / (1 + np.exp((steps - middle) / 1.2))
        return np.asarray(mean - mean[-1])

    def drawn(middle: float) -> NDArray[np.float64]:
        shared = rng.gamma(4, 0.25, (1, PAIRS, 1))
        return falling(middle) * (shared + rng.gamma(4, 0.25, (curves, PAIRS, 7))) / 2

    def truth(middle: float) -> float:
        return float(decision_steps(steps, falling(middle)))

    # Each group of images moves the control's fine decision; leaving one out shows how much.
    shift = rng.normal(0, 0.3, 8)
    others = (shift.sum() - shift) / 7
    arrays = {
        "steps": steps,
        "label": np.zeros(curves),
        "g": np.arange(1, curves + 1) / curves,
        "control": np.zeros(curves, bool),
        "coarse": drawn(7 - size),
        "fine": drawn(10),
        "gaussian_coarse": drawn(7)[None],
        "gaussian_fine": drawn(10 + shift.mean())[None],
        "without_coarse": np.broadcast_to(falling(7), (8, curves, 7)),
        "without_fine": np.stack([np.tile(falling(10 + other), (curves, 1)) for other in others]),
        "finals": np.array([FINALS]),
    }
    order = Order(arrays=arrays, seed=seed)
    _, interval = order.excess(order.coupled)
    assert not isinstance(interval, Unavailable)
    excess = (truth(10) - truth(7 - size)) - (truth(10) - truth(7))
    return not interval.low <= excess <= interval.high, bool(interval.low > 0)


def twin_level(seed: int, spread: float, noise: float = 0.1) -> bool:
    """Whether R2's interval misses 0 where the model is one more of its twins: drawn log ratios.

    Mean gaps of networks spread by ``spread``; pairs add an error of ``noise``, half of whose
    variance networks share, and the exchanges and the changes without a pair spread as it does.
    """
    rng = np.random.default_rng([seed, 7])

    def shared(*shape: int) -> NDArray[np.float64]:
        both = rng.standard_normal((1, *shape)) + rng.standard_normal((1 + TWINS, *shape))
        return np.asarray(noise * both / np.sqrt(2))

    values = spread * rng.standard_normal(1 + TWINS) + shared()
    draws, left_out = shared(199), shared(PAIRS) / np.sqrt(PAIRS)
    zero = np.zeros_like
    networks = [
        LayerGaps(observed=np.array([0.0, x]), draws=np.stack([zero(d), d]),
                  left_out=np.stack([zero(e), e]))
        for x, d, e in zip(values, draws, left_out, strict=True)
    ]  # fmt: skip
    low, high = gap_beyond_twins(networks[0], networks[1:]).interval
    return not low <= 0 <= high


def jobs(options: argparse.Namespace) -> Iterator[tuple[str, str, int]]:
    """Everything that is asked for: part, subject, seed."""
    for seed in range(max(options.seeds, options.gaussian, options.random)):
        for name in EXPECTED:
            wanted = options.gaussian if name.startswith("Gaussian") else options.seeds
            if seed < wanted:
                yield "known", name, seed
        if seed < options.random:
            few = options.random // 2  # of the slowest
            yield from (
                ("random", name, seed) for name in SIZES if seed < few or "6 layers" not in name
            )


def verdicts_of(part: str, subject: str, seed: int) -> list[Verdict]:
    """Verdicts on one subject at one seed."""
    if part == "random":
        return random_weights(subject, seed)
    if subject in SUBJECTS:
        made, settings = SUBJECTS[subject]
        config = SyncConfig(pairs=PAIRS, steps=STEPS, finals=FINALS, seed=seed, **settings)
        return [order_of(made(), config)[1]]
    return [differences(subject, seed)]


def levels(repeats: int) -> None:
    """Error rates of the intervals of R1 and R2 on drawn data."""
    runs = RUNS.document()
    if len(runs["levels"]) and runs["levels"]["repeats"] >= repeats:
        return
    found: Row = {"repeats": repeats}
    for name, size in (("R1, no excess", 0.0), ("R1, excess of 1.5 steps", 1.5)):
        outcomes = [order_level(seed, size) for seed in range(repeats)]
        found[name] = {
            "missed": round(float(np.mean([missed for missed, _ in outcomes])), 4),
            "above 0": round(float(np.mean([above for _, above in outcomes])), 4),
        }
    for spread in (0.0, 0.1, 0.5):
        wrong = [twin_level(seed, spread) for seed in range(repeats)]
        found[f"R2, networks spread by {spread:g}"] = {"missed": round(float(np.mean(wrong)), 4)}
    RUNS.put(levels=found)


def page_tables() -> dict[str, tuple[Path, str]]:
    """Tables by the mark of their place."""
    runs = RUNS.document()
    head = ["subject", "verdict", "right answer", "runs", *OUTCOMES, "median effect"]
    lines = []
    for subject, seeds in runs["known"].items():
        rows = [next(iter(run["verdicts"].items())) for run in seeds.values()]
        lines.append([subject, rows[0][0], EXPECTED[subject], *_counts([row for _, row in rows])])
    lines.sort(key=lambda line: (line[1], list(EXPECTED).index(line[0])))
    known = _table(head, lines)
    head = ["random weights", "verdict", "runs", *OUTCOMES, "median effect"]
    lines = [
        [subject, name, *_counts([run["verdicts"][name] for run in seeds.values()])]
        for subject, seeds in runs["random"].items()
        for name in ("R1", "R2")
    ]
    random = _table(head, lines)
    level_lines = []
    for name, rates in runs["levels"].items():
        if name != "repeats":
            words = "; ".join(f"{what} {rate:.1%}" for what, rate in rates.items())
            level_lines.append([name, words])
    level = _table(["case", f"share of {runs['levels'].get('repeats', 0)} repeats"], level_lines)
    page, calibration = DOCS / "what-holds-means.md", DOCS / "calibration.md"
    return {
        "sync subjects": (page, known),
        "sync random weights": (page, random),
        "sync levels": (calibration, level),
    }


def _counts(rows: list[Row]) -> list[str]:
    counts = [sum(row["outcome"] == name for row in rows) for name in OUTCOMES]
    effects = [row["effect"] for row in rows if row["effect"] is not None]
    middle = f"{np.median(effects):+.2f}" if effects else "–"
    return [str(len(rows)), *(str(count or "·") for count in counts), middle]


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write_pages() -> None:
    """Write the tables into the pages."""
    for name, (path, table) in page_tables().items():
        page = path.read_text(encoding="utf-8")
        first, last = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, mark, rest = page.partition(first)
        if not mark or last not in rest:
            raise SystemExit(f"{path} has no place marked {first!r}.")
        text = before + first + table + "\n" + last + rest.partition(last)[2]
        path.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="of every known subject")
    parser.add_argument("--gaussian", type=int, default=50, help="seeds of each Gaussian subject")
    parser.add_argument("--random", type=int, default=20, help="seeds of each random network")
    parser.add_argument("--repeats", type=int, default=1000, help="of each error rate")
    parser.add_argument("--page", action="store_true", help="write the tables of the pages only")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for part, subject, seed in () if options.page else jobs(options):
        if RUNS.has(part, subject, str(seed)):
            continue
        start = time.process_time()
        verdicts = verdicts_of(part, subject, seed)
        rows = RUNS.store(part, subject, str(seed), verdicts, time.process_time() - start)
        short = ", ".join(f"{n} {r['outcome']} {r['effect']}" for n, r in rows.items())
        print(part, subject, seed, short, flush=True)
    if not options.page:
        levels(options.repeats)
    for name, (_, table) in page_tables().items():
        print(f"{name}\n{table}\n")
    if options.page:
        write_pages()


if __name__ == "__main__":
    main()
