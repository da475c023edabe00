"""What the field's pieces say of SmolLM2-135M on named windows of WikiText-2.

Question: do lengths, turns, spectra, Jacobians, forecasts and interventions come out as a trial of
the same definitions said, and does the forecast beat its peers?

    python -m benchmarks.field_smollm2 --model FOLDER --text wikitext2_test.txt.gz
    python -m benchmarks.field_smollm2 --model FOLDER --text FILE --parts forecast --draws 24

Windows are token ids as ``tokenizer(text)`` gives them. Each part goes to
``results/field_smollm2.json`` as soon as it is there.
"""

import argparse
import gzip
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr
from torch import Tensor, nn

from benchmarks.machine import described
from flowscope.levers import intervene
from flowscope.models.loading import load
from flowscope.pde import jacobian_bounds, token_spectrum
from flowscope.probes import model_anatomy, tap_pass
from flowscope.probes.block_visit import block_visits
from flowscope.probes.field.changes import Change, Quantise, Skip, rounded_weights, weight_error
from flowscope.probes.field.cloud import cloud
from flowscope.probes.field.field_probe import COLUMNS, FieldProbe
from flowscope.probes.field.forecast import Forecast, forecast_changes, measured_divergence
from flowscope.probes.tap_loop import PlainBatch
from flowscope.tap import BlockPass, Chain, Tap

RESULT = Path(__file__).parent / "results" / "field_smollm2.json"
WINDOW = 128
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Subject:
    """The model, its blocks, and the tokens of the text."""

    model: nn.Module
    chain: Chain
    ids: Tensor

    def windows(self, start: int, stop: int, length: int = WINDOW) -> Tensor:
        """Rows of tokens ``start`` to ``stop``."""
        return self.ids[start:stop].reshape(-1, length)


def opened(folder: str, text: Path) -> Subject:
    loaded = load(folder)
    assert loaded.tokenizer is not None
    raw = gzip.decompress(text.read_bytes()).decode("utf-8")
    ids = torch.tensor(loaded.tokenizer(raw[:400_000])["input_ids"])
    inputs = {"input_ids": ids[None, :8], "use_cache": False}
    depth = model_anatomy(loaded.model, inputs).depth
    assert isinstance(depth, Chain), depth
    return Subject(loaded.model, depth, ids)


def budget(subject: Subject, options: argparse.Namespace) -> dict[str, Any]:
    """Medians over windows of every column, by block; 0 is the state that enters block 1."""
    rows = subject.windows(1280, 4352)
    batches = [
        PlainBatch(
            inputs={"input_ids": part, "use_cache": False},
            prompts=np.arange(start, start + len(part)),
            mask=torch.ones(part.shape, dtype=torch.bool),
        )
        for start, part in zip(range(0, len(rows), 4), rows.split(4), strict=True)
    ]
    pieces = tap_pass(subject.model, batches, {"field": FieldProbe(subject.model)})["field"]
    values = np.concatenate([piece.arrays["values"] for piece in pieces])
    massive = np.concatenate([piece.arrays["massive"] for piece in pieces])
    lengths, shares = plain_readings(subject, rows)
    return {
        "tokens": "1280–4351 in 24 × 128, first token of each left out",
        "columns": {
            name: [rounded(x) for x in np.nanmedian(values[:, :, place], 0)]
            for place, name in enumerate(COLUMNS)
            if np.isfinite(values[:, :, place]).any()
        },
        "massive_positions": sorted({int(p) for p in massive[:, 2]}),
        "length_of_token_0": [rounded(x) for x in lengths],
        "high_frequency_attention, mean over windows": {
            name: [rounded(x) for x in share] for name, share in shares.items()
        },
    }


@torch.no_grad()
def plain_readings(subject: Subject, rows: Tensor) -> tuple[Array, dict[str, Array]]:
    """Length of token 0 after each block, median over windows; frequencies with and without it.

    Read without the field's probe, from the tap alone.
    """
    lengths: dict[int, list[Tensor]] = {}
    shares: dict[str, dict[int, list[float]]] = {"with token 0": {}, "without": {}}

    def read(event: BlockPass) -> None:
        block = event.site.index
        lengths.setdefault(block, []).append(event.hidden_out[:, 0].norm(dim=-1))
        [write] = [w.tensor for w in event.writes if w.kind == "attention"]
        for found, first in zip(shares.values(), (0, 1), strict=True):
            high = token_spectrum(write[:, first:]).high_frequency
            found.setdefault(block, []).extend(high.tolist())

    with Tap(subject.model) as tap:
        tap.on_block(read)
        for part in rows.split(4):
            subject.model(part, use_cache=False)
    return (
        np.array([float(torch.cat(lengths[b]).median()) for b in sorted(lengths)]),
        {name: np.array([np.mean(found[b]) for b in sorted(found)])
         for name, found in shares.items()},
    )  # fmt: skip


def jacobians(subject: Subject, options: argparse.Namespace) -> dict[str, Any]:
    """Bounds of every block at 64 tokens, in the relative metric."""
    inputs = {"input_ids": subject.windows(2560, 2624, 64), "use_cache": False}
    rows = []
    for number, visit in enumerate(block_visits(subject.model, inputs), 1):
        began = time.process_time()
        found = jacobian_bounds(visit.write, visit.H0, products=options.products)
        seconds = time.process_time() - began
        rows.append(
            {
                "block": number,
                "sigma_max": rounded(found.sigma_max.value),
                "log_norm": rounded(found.log_norm.value),
                "mean_gain": rounded(found.mean_gain.value),
                "converged": found.sigma_max.converged,
                "product_over_forward": rounded(
                    seconds / found.products / forward_seconds(visit.write, visit.H0)
                ),
            }
        )
        print(rows[-1], flush=True)
    return {"tokens": "2560–2623", "blocks": rows}


@torch.no_grad()
def forward_seconds(write: Callable[[Tensor], Tensor], state: Tensor) -> float:
    """Processor seconds of a block, median of five."""
    seconds = []
    for _ in range(5):
        began = time.process_time()
        write(state)
        seconds.append(time.process_time() - began)
    return float(np.median(seconds))


def forecast(subject: Subject, options: argparse.Namespace) -> dict[str, Any]:
    """Forecast on one text; cost measured on the same text and on another one."""
    blocks = range(len(subject.chain))
    rounding: list[tuple[int, Change]] = [(b, Quantise(bits=3, group=64)) for b in blocks]
    skipping: list[tuple[int, Change]] = [(b, Skip()) for b in blocks]
    rows = subject.windows(7680, 8192)
    began = time.process_time()
    parts = [
        forecast_changes(
            subject.model, {"input_ids": row[None]}, subject.chain, [*rounding, *skipping],
            draws=options.draws, seed=number,
        )
        for number, row in enumerate(rows)
    ]  # fmt: skip
    spent = time.process_time() - began
    whole = Forecast(
        slopes=np.concatenate([part.slopes for part in parts], 1),
        tokens=np.concatenate([part.tokens for part in parts]),
        relative_error=np.concatenate([part.relative_error for part in parts], 1),
        turn=np.concatenate([part.turn for part in parts], 1),
    )
    texts = {"same text": rows, "other text": subject.windows(20480, 20992)}
    began = time.process_time()
    cost = {
        "rounding": {name: measured(subject, rounding, rows) for name, rows in texts.items()},
        "skipping": {"other text": measured(subject, skipping, texts["other text"])},
    }
    each = (time.process_time() - began) / (3 * len(rounding))
    weights = [
        weight_error(block, rounded_weights(block, 3, 64))
        for block in (subject.model.get_submodule(b.path) for b in subject.chain.blocks)
    ]
    half = len(rounding)
    return {
        "tokens": "forecast 7680–8191 in 4 × 128; other text 20480–20991 in 4 × 128",
        "draws": options.draws,
        "seconds": rounded(spent),
        "seconds_per_measured_candidate": rounded(each),
        "time_over_measuring_150": rounded(spent / (150 * each)),
        "rounding": {
            name: agreement(whole, slice(0, half), values, weights)
            for name, values in cost["rounding"].items()
        },
        "skipping": {
            name: agreement(whole, slice(half, None), values, None)
            for name, values in cost["skipping"].items()
        },
    }


def measured(subject: Subject, changes: Sequence[tuple[int, Change]], rows: Tensor) -> Array:
    """Cost of each change on each window."""
    inputs = {"input_ids": rows, "use_cache": False}
    found = []
    for change in changes:
        found.append(measured_divergence(subject.model, inputs, subject.chain, change))
        print(change[1].kind, change[0] + 1, rounded(found[-1].mean()), flush=True)
    return np.stack(found)


def agreement(
    forecast: Forecast, chosen: slice, cost: Array, weights: Sequence[float] | None
) -> dict[str, Any]:
    """Ratio and ranks of a forecast; the lead over a peer with windows and draws resampled."""
    slopes, tokens = forecast.slopes[chosen], forecast.tokens
    error = forecast.relative_error[chosen]
    turn = forecast.turn[chosen]
    predicted = 0.5 * np.square(slopes).mean((1, 2)) / tokens.mean()
    ratio = cost.mean(1) / predicted
    generator = np.random.default_rng(0)
    leads, ranks = [], []
    for _ in range(999):
        rows = generator.integers(0, slopes.shape[1], slopes.shape[1])
        other = generator.integers(0, cost.shape[1], cost.shape[1])
        draws = generator.integers(0, slopes.shape[2], slopes.shape[2])
        drawn = np.square(slopes[:, rows][:, :, draws]).mean((1, 2))
        there = cost[:, other].mean(1)
        ranks.append(rank(drawn, there))
        leads.append(ranks[-1] - rank(error[:, rows].mean(1), there))
    peers: dict[str, Array] = {"relative_error": error.mean(1), "turn": turn.mean(1)}
    peers |= {} if weights is None else {"weight_error": np.array(weights)}
    return {
        "median_ratio": rounded(np.median(ratio)),
        "total_ratio": rounded(cost.mean(1).sum() / predicted.sum()),
        "within_.6_1.6": rounded(np.mean((ratio > 0.6) & (ratio < 1.6))),
        "rank": rounded(rank(predicted, cost.mean(1))),
        "rank_interval": [rounded(x) for x in np.quantile(ranks, [0.025, 0.975])],
        "rank_of_peers": {name: rounded(rank(peer, cost.mean(1))) for name, peer in peers.items()},
        "lead_over_relative_error": rounded(
            rank(predicted, cost.mean(1)) - rank(error.mean(1), cost.mean(1))
        ),
        "lead_interval": [rounded(x) for x in np.quantile(leads, [0.025, 0.975])],
        "predicted": [rounded(x) for x in predicted],
        "measured": [rounded(x) for x in cost.mean(1)],
    }


def sigma(subject: Subject, options: argparse.Namespace) -> dict[str, Any]:
    """Rank correlation of σ_max with the distance of measured over forecast from 1, if stored."""
    kept = json.loads(RESULT.read_text())
    gains = np.array([row["sigma_max"] for row in kept["jacobians"]["blocks"]])
    found = {}
    for kind in ("rounding", "skipping"):
        for name, part in kept["forecast"][kind].items():
            off = np.abs(np.log(np.array(part["measured"]) / np.array(part["predicted"])))
            found[f"{kind}, {name}"] = rounded(rank(gains, off))
    return {"rank_of_sigma_max_with_log_ratio": found}


def cost(subject: Subject, options: argparse.Namespace) -> dict[str, Any]:
    """Processor seconds of a draw and of a measured candidate, in turn on the same 512 tokens.

    The model as it is runs once for all candidates. What a forecast takes is the pass that finds
    the changes, and then the draws: seconds at two numbers of draws give both.
    """
    inputs = {"input_ids": subject.windows(7680, 8192), "use_cache": False}
    blocks = range(len(subject.chain))
    changes: list[tuple[int, Change]] = [(b, Quantise(bits=3, group=64)) for b in blocks]
    changes += [(b, Skip()) for b in blocks]
    few, many = 2, 6
    spent: dict[str, list[float]] = {"few": [], "many": [], "measured": [], "forward": []}

    def timed(name: str, job: Callable[[], object]) -> None:
        began = time.process_time()
        job()
        spent[name].append(time.process_time() - began)

    with torch.no_grad():
        plain = subject.model(**inputs).logits
    for number in range(options.rounds):
        for name, draws in (("few", few), ("many", many)):
            timed(name, lambda draws=draws: forecast_changes(
                subject.model, inputs, subject.chain, changes, draws=draws))  # fmt: skip
        for change in (changes[5 + number], changes[-5 - number]):
            timed("measured", lambda change=change: measured_divergence(
                subject.model, inputs, subject.chain, change, plain=plain))  # fmt: skip
        with torch.no_grad():
            timed("forward", lambda: subject.model(**inputs))
    found = {name: float(np.median(seconds)) for name, seconds in spent.items()}
    draw = (found["many"] - found["few"]) / (many - few)
    whole = found["few"] + draw * (options.draws - few)
    return {
        "tokens": "7680–8191 in 4 × 128", "changes": len(changes), "draws": options.draws,
        "rounds": options.rounds, "seconds_of_a_draw": rounded(draw),
        "seconds_before_the_draws": rounded(found["few"] - few * draw),
        "seconds_of_a_measured_candidate": rounded(found["measured"]),
        "seconds_of_a_forward_pass": rounded(found["forward"]),
        "time_over_measuring_150": rounded(whole / (150 * found["measured"])),
    }  # fmt: skip


def rank(x: Array, y: Array) -> float:
    return float(spearmanr(x, y).statistic)


CHANGES: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "writes × 0.5": {"attention": 0.5, "feed_forward": 0.5},
    "residual × 0.97": {"residual": 0.97},
    "residual × 1.03": {"residual": 1.03},
    "feed-forward × 0": {"feed_forward": 0.0},
    "residual × 0": {"residual": 0.0},
    "norms frozen": {"norm": "frozen"},
    "norms removed": {"norm": "removed"},
}


@torch.no_grad()
def interventions(subject: Subject, options: argparse.Namespace) -> dict[str, Any]:
    """Loss and mean cosine under changes of all blocks at once."""
    ids = subject.windows(3840, 4096)
    rows: dict[str, Any] = {}
    for name, change in CHANGES.items():
        cosines: list[float] = []
        overflow: list[int] = []

        def watch(
            index: int,
            state: Tensor,
            cosines: list[float] = cosines,
            overflow: list[int] = overflow,
        ) -> None:
            if not bool(state.isfinite().all()):
                overflow.append(index + 1)
                return
            found = [cloud(x[1:]).get("mean_cosine", np.nan) for x in state.float()]
            cosines.append(float(np.mean(found)))

        with intervene(subject.model, watch=watch, **change):
            loss = subject.model(ids, labels=ids, use_cache=False).loss
        above = [number for number, cosine in enumerate(cosines, 1) if cosine > 0.95]
        rows[name] = {
            "loss": rounded(float(loss)),
            "added": rounded(float(loss) - rows["none"]["loss"]) if rows else 0.0,
            "first_block_with_cosine_above_.95": above[0] if above else None,
            "first_overflow": overflow[0] if overflow else None,
        }
        print(name, rows[name], flush=True)
    return {"tokens": "3840–4095 in 2 × 128", "changes": rows}


def rounded(x: float) -> float | None:
    """Four digits that count; None for what is not finite."""
    return float(f"{x:.4g}") if np.isfinite(x) else None


PARTS = {
    "interventions": interventions,
    "budget": budget,
    "jacobians": jacobians,
    "forecast": forecast,
    "cost": cost,
    "sigma": sigma,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--parts", default=",".join(PARTS), help="separated by commas")
    parser.add_argument("--draws", type=int, default=64)
    parser.add_argument("--products", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=2, help="of the part cost")
    options = parser.parse_args()
    subject = opened(options.model, options.text)
    for name in options.parts.split(","):
        began = time.process_time()
        found = PARTS[name](subject, options)
        kept = json.loads(RESULT.read_text()) if RESULT.is_file() else {}
        kept |= {"machine": described(), name: found | {
            "processor_seconds": round(time.process_time() - began, 1)}}  # fmt: skip
        RESULT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(name, kept[name]["processor_seconds"], "s", flush=True)


if __name__ == "__main__":
    main()
