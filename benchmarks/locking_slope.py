"""What the verdict on locking says of subjects whose answer is known, and of real models.

Steps of iid noise, steps scaled by δ^a (planted locking), random weights, the bundled model, and
any other model that is named. Each line has the slope of log(TV / transplanted TV) on log δ, its
95 % t interval over prompts, the slope of the log step size, and the outcome:

    python -m benchmarks.locking_slope
    python -m benchmarks.locking_slope --model FOLDER --text stories.txt --time

A model folder without a tokenizer may hold a list of scored pieces (``tok512.json``).
"""

import argparse
import gzip
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from scipy.stats import t

from benchmarks.scored_pieces import ScoredPieces
from flowscope.flows import SlopeSums, common_slope, log_response, slope_sums
from flowscope.models.loading import Loaded, load
from flowscope.models.prompts import Prompts, batches_of, packaged_texts, prompts_of
from flowscope.models.twin import fresh_twin
from flowscope.nets import bundled_path
from flowscope.probes import (
    Arrays,
    DepthProbe,
    Rows,
    TransplantProbe,
    drawn_donors,
    positions_readout,
    spaced_rows,
)
from flowscope.simplex import transplanted_steps
from flowscope.tap import Tail, Tap

PROMPTS, TOKENS = 32, 24
NEGLIGIBLE, SPREAD, SHARE = 0.05, 0.5, (0.1, 0.9)


def planted(seed: int, outcomes: int, exponent: float, layers: int = 6) -> Arrays:
    """Steps of iid Gauss noise times δ^exponent, from laws that are decided to all degrees."""
    rng = np.random.default_rng(seed)
    parts: list[dict[str, list[torch.Tensor]]] = []
    for _ in range(PROMPTS):
        lead = rng.uniform(0, 6 + np.log(outcomes), (TOKENS, 1)) * (np.arange(outcomes) == 0)
        z = torch.from_numpy(rng.normal(size=(TOKENS, outcomes)) + lead)
        columns: dict[str, list[torch.Tensor]] = {}
        for _ in range(layers):
            p = z.softmax(-1)
            tail = p.scatter(-1, p.argmax(-1, keepdim=True), 0.0).sum(-1, keepdim=True)
            after = z + tail**exponent * torch.from_numpy(rng.normal(size=z.shape))
            steps = transplanted_steps(z, after, drawn_donors(TOKENS, rng))
            for name, values in vars(steps).items():
                columns.setdefault(name, []).append(values)
            z = after
        parts.append(columns)
    arrays = {
        name: np.concatenate([torch.stack(part[name], 1).numpy() for part in parts])
        for name in parts[0]
    }
    return {**arrays, "prompt": np.repeat(np.arange(PROMPTS), TOKENS)}


def tail_of(loaded: Loaded, prompts: Prompts) -> Tail:
    """The way from hidden states to logits."""
    batch = next(iter(batches_of(loaded, prompts, 1)))
    with Tap(loaded.model) as tap, torch.no_grad():
        tap.on_block(lambda event: None)
        loaded.model(**batch.inputs)
        tail = tap.anatomy.tail
    assert isinstance(tail, Tail)
    return tail


@torch.no_grad()
def seconds_of(
    loaded: Loaded, prompts: Prompts, probe: DepthProbe | TransplantProbe | None, tokens: int | None
) -> float:
    """Processor time of a probe over all prompts, on ``tokens`` tokens of each."""
    start = time.process_time()
    for batch in batches_of(loaded, prompts, 8):
        with Tap(loaded.model) as tap:
            if probe is not None:
                every = Rows.of_mask(batch.prompts, batch.mask)
                spaced = spaced_rows(batch.prompts, batch.mask, tokens=tokens or 1)
                probe.begin(every if tokens is None else spaced)
                tap.on_block(probe.update)
            loaded.model(**batch.inputs)
        if probe is not None:
            probe.end()
    return time.process_time() - start


def measured(loaded: Loaded, prompts: Prompts) -> Arrays:
    """Own and transplanted steps of a model."""
    probe = TransplantProbe(positions_readout(tail_of(loaded, prompts)))
    seconds_of(loaded, prompts, probe, TOKENS)
    return probe.arrays()


def outcome(sums: SlopeSums, layers: list[int]) -> tuple[str, float, float, float]:
    """Outcome of the verdict on some layers, with the slope and its interval."""
    slope = common_slope(sums, layers)
    half = float(t.ppf(0.975, len(slope.pseudo_values) - 1)) * slope.standard_error
    numbers = (slope.value, slope.value - half, slope.value + half)
    spread, share = sums.spread(layers), sums.share(layers)
    if not (spread >= SPREAD and SHARE[0] <= share <= SHARE[1]):
        return "uninformative", *numbers
    if numbers[1] > 0 and numbers[0] > NEGLIGIBLE:
        return "holds", *numbers
    if numbers[2] < 0 and numbers[0] < -NEGLIGIBLE:
        return "fails", *numbers
    return "abstains", *numbers


def described(arrays: Arrays) -> Iterator[str]:
    """Lines on all layers, and on those where some tokens are decided and some are not."""
    response = log_response(arrays["total_variation"], arrays["transplanted"])
    sums = slope_sums(arrays["prompt"], arrays["tail_mass"], response)
    sizes = slope_sums(arrays["prompt"], arrays["tail_mass"], np.log(arrays["half_oscillation"]))
    every = list(range(sums.count.shape[1]))
    mixed = [k for k in every if SHARE[0] <= sums.shares[k] <= SHARE[1]]
    for name, layers in (("all layers", every), ("mixed layers", mixed)):
        word, value, low, high = outcome(sums, layers)
        yield (
            f"  {name:<12} {value:+.3f} [{low:+.3f}, {high:+.3f}] {word:<14} step size "
            f"{common_slope(sizes, layers).value:+.3f}, sd {sums.spread(layers):.2f}, "
            f"decided {sums.share(layers):.0%}, {len(layers)} of {len(every)} layers"
        )
    slopes = [common_slope(sums, [layer]).value for layer in every]
    yield "  by layer     " + " ".join(f"{slope:+.2f}" for slope in slopes)


def synthetic(seeds: int) -> None:
    """Print how often each outcome comes for subjects that are drawn."""
    for outcomes in (50, 1000):
        for exponent in (0.0, 0.1, 0.3):
            found = []
            for seed in range(seeds):
                arrays = planted(seed, outcomes, exponent)
                response = log_response(arrays["total_variation"], arrays["transplanted"])
                sums = slope_sums(arrays["prompt"], arrays["tail_mass"], response)
                found.append(outcome(sums, list(range(sums.count.shape[1]))))
            words = [word for word, *_ in found]
            counts = ", ".join(f"{word} {words.count(word)}" for word in sorted(set(words)))
            values = np.array([value for _, value, *_ in found])
            half = np.mean([(high - low) / 2 for *_, low, high in found])
            wrong = sum(low > 0 or high < 0 for *_, low, high in found)
            print(
                f"V = {outcomes}, a = {exponent}: slope {values.mean():+.3f} (sd "
                f"{values.std():.3f}, half width {half:.3f}), intervals without 0: {wrong} of "
                f"{seeds}; {counts}",
                flush=True,
            )


def opened(model: Path | None, text: Path | None, length: int) -> tuple[Loaded, Prompts]:
    """A model with its prompts; the bundled one with packaged prompts by default."""
    pieces = next(iter(model.glob("tok*.json")), None) if model and model.is_dir() else None
    scored = pieces is not None and not (pieces.parent / "tokenizer.json").exists()
    tokenizer = ScoredPieces(pieces) if pieces and scored else None
    loaded = load(model or bundled_path(), tokenizer=tokenizer)
    if text is None:
        return loaded, prompts_of(loaded, packaged_texts(), count=PROMPTS, length=length)
    raw = text.read_bytes()
    content = (gzip.decompress(raw) if text.suffix == ".gz" else raw).decode()
    return loaded, prompts_of(loaded, content, count=PROMPTS, length=length)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="draws of each synthetic subject")
    parser.add_argument("--twins", type=int, default=8, help="random-weights twins")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--time", action="store_true", help="time the probe beside the depth probe")
    options = parser.parse_args()
    if options.seeds:
        synthetic(options.seeds)
    loaded, prompts = opened(options.model, options.text, options.length)
    name = options.model.name if options.model else "bundled"
    print(f"{name}, {len(prompts)} prompts of {options.length} tokens")
    print("\n".join(described(measured(loaded, prompts))))
    for seed in range(options.twins):
        twin = fresh_twin(loaded.model, seed)
        assert isinstance(twin, torch.nn.Module)
        print(f"{name}, random weights {seed}")
        print(next(described(measured(load(twin, tokenizer=loaded.tokenizer), prompts))))
    if options.time:
        tail = tail_of(loaded, prompts)
        readout = positions_readout(tail)
        bare = seconds_of(loaded, prompts, None, None)
        depth = seconds_of(loaded, prompts, DepthProbe(readout), None)
        lent = seconds_of(loaded, prompts, TransplantProbe(readout), TOKENS)
        print(
            f"processor seconds: model {bare:.1f}, with depth {depth:.1f}",
            f"with transplants {lent:.1f}",
            sep=", ",
        )


if __name__ == "__main__":
    main()
