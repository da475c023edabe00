"""Train the bundled denoiser: masked diffusion over sudoku of three sizes.

    PYTHONPATH=src python -m studies.denoising_training.train --data bases.npz --out OUT

The seconds bound the training with its compilation; the evaluation follows (below a minute). An
average of the weights (EMA) is what is watched on validation puzzles, saved every minute and
evaluated on test puzzles. The out folder has ``model.safetensors`` (bfloat16, names of
``LlamaForCausalLM``) and ``training.json``; `studies.denoising_training.card` makes a model folder
of them. Two runs with ``--arena FOLDER`` compare their validation losses after ``--duel`` seconds,
and the worse one ends.
"""

import argparse
import copy
import hashlib
import json
import math
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from studies.denoising_training.batches import sources
from studies.denoising_training.evaluation import evaluated, filled
from studies.denoising_training.network import Denoiser, Sizes, state_of_llama
from studies.denoising_training.optimiser import Muon
from torch import Tensor

from flowscope.nets.sudoku import CHARACTERS, SHAPES, Puzzles, puzzles

__all__ = ["main"]

WAYS: dict[str, dict[str, Any]] = {
    "confidence": {},
    "random_order": {"order": "random"},
    "confidence_2": {"together": 2},
    "confidence_4": {"together": 4},
    "one_pass": {"together": 81},
}
"""Ways of decoding that the card reports."""


class Run:
    """One training run: network, average, data, options, history."""

    def __init__(self, options: argparse.Namespace, started: float) -> None:
        self.options, device = options, options.device
        self.sources = sources(options.data, options.unique, device)
        self.counts = dict(zip(SHAPES, options.batch, strict=True))
        self.shares = dict(zip(SHAPES, options.shares, strict=True))
        self.model = Denoiser(sizes(options), options.seed).to(device)
        self.average = copy.deepcopy(self.model).requires_grad_(False)
        lengths = [source.tokens for source in self.sources.values()]
        self.rotations = self.model.rotations(lengths, list(self.counts.values()))
        self.draw = torch.Generator(device).manual_seed(options.seed)
        self.validation = {
            task: puzzles(task, options.watched, seed=1, split="validation") for task in SHAPES
        }
        self.history: list[dict[str, Any]] = []
        self.start, self.begun, self.saved = started, 0.0, 0.0

    @property
    def elapsed(self) -> float:
        """Seconds since training was asked for."""
        return time.perf_counter() - self.start

    @property
    def share(self) -> float:
        """How much of the training time is used up."""
        left = max(1e-9, self.options.seconds - self.begun)
        return (self.elapsed - self.begun) / left

    def batch(self, draw: torch.Generator) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Texts, digits and masks of all tasks."""
        drawn = [s.batch(self.counts[task], draw) for task, s in self.sources.items()]
        texts, digits, masks = (list(parts) for parts in zip(*drawn, strict=True))
        return texts, digits, masks


def sizes(options: argparse.Namespace) -> Sizes:
    """The shape of the network."""
    return Sizes(
        vocabulary=len(CHARACTERS),
        layers=options.layers,
        width=options.width,
        heads=options.heads,
        feed_forward=options.feed_forward,
        periods=periods(options.width // options.heads // 2, options.positions),
    )


def periods(count: int, positions: str) -> tuple[float, ...]:
    """Periods of the rotary positions, in tokens.

    ``grid`` takes the harmonics of the three row lengths (side + 1), so that a head can find the
    cells above and below at any distance, and fills up with long periods; a number is the base of
    Llama's geometric periods.
    """
    if positions != "grid":
        return tuple(2 * math.pi * float(positions) ** (i / count) for i in range(count))
    strides = [shape.side + 1 for shape in SHAPES.values()]
    short = sorted({stride / m for stride in strides for m in range(1, stride // 2 + 1)})
    longest, shortest = 240.0, 1.4 * max(strides)
    slow = max(0, count - len(short))
    ratio = (shortest / longest) ** (1 / max(1, slow - 1))
    return tuple(short[-count:] + [longest * ratio**i for i in range(slow)])


def loss_function(run: Run, model: Denoiser) -> Callable[..., Tensor]:
    """Mean nats per masked cell of every task; compiled where that is asked for and works."""
    places = [(source.cells, source.first_digit) for source in run.sources.values()]
    device = run.options.device

    def eager(texts: list[Tensor], digits: list[Tensor], masks: list[Tensor]) -> Tensor:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            logits = model(texts, *run.rotations)
        losses = []
        for part, (cells, first), wanted, masked in zip(logits, places, digits, masks, strict=True):
            nats = F.cross_entropy(
                part[:, cells].float().flatten(0, 1), (wanted + first).flatten(), reduction="none"
            )
            losses.append((nats * masked.flatten()).sum() / masked.sum())
        return torch.stack(losses)

    if not run.options.compile:
        return eager
    compiled = torch.compile(eager, dynamic=False)
    try:
        compiled(*run.batch(run.draw)).sum().backward()
    except Exception as error:  # whatever a compiler raises, the run goes on without it
        print(f"not compiled: {type(error).__name__}: {str(error)[:300]}", flush=True)
        compiled = eager
    model.zero_grad(set_to_none=True)
    return compiled


def train(run: Run) -> None:
    """Steps until the time or the number of steps is used up."""
    options, model = run.options, run.model
    muon = Muon(
        [(model.reading, 3), (model.entering, 2), (model.writing, 1), (model.leaving, 1)],
        momentum=0.95,
        decay=options.decay,
    )
    adam = torch.optim.AdamW(
        model.others(), lr=0.0, betas=(0.9, 0.98), weight_decay=0.0, fused=options.device == "cuda"
    )
    loss_of = loss_function(run, model)
    weights = torch.tensor(list(run.shares.values()), device=options.device)
    run.begun = run.elapsed
    print(f"compiled after {run.begun:.1f} s", flush=True)
    summed, step, watched, since = torch.zeros(len(SHAPES), device=options.device), 0, 0.0, 0
    while (share := max(run.share, step / options.steps)) < 1:
        falling = 0.5 * (1 + math.cos(math.pi * min(1.0, share)))
        rate = falling * min(1.0, (step + 1) / options.warmup)
        losses = loss_of(*run.batch(run.draw))
        (losses * weights).sum().backward()
        muon.step(options.rate * rate)
        for group in adam.param_groups:
            group["lr"] = options.other_rate * rate
        adam.step()
        model.zero_grad(set_to_none=True)
        step += 1
        keep = min(options.memory, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(run.average.parameters()), list(model.parameters()), 1 - keep)
        summed += losses.detach()
        if share >= watched:
            watch(run, step, summed / (step - since))
            watched += 1 / options.moments
            since = step
            summed.zero_()
            if beaten(run):
                sys.exit(0)
    watch(run, step, summed / max(1, step - since))


@torch.no_grad()
def watch(run: Run, step: int, losses: Tensor) -> None:
    """Accuracy on validation puzzles; weights saved every minute."""
    row: dict[str, Any] = {"step": step, "seconds": run.elapsed, "share": min(1.0, run.share)}
    for (task, found), loss in zip(run.validation.items(), losses.tolist(), strict=True):
        with torch.autocast(run.options.device, torch.bfloat16, enabled=run.model.head.is_cuda):
            right = found.solved(filled(run.average, found).tokens)
        row[task] = {"train_loss": loss, "validation_accuracy": float(right.mean())}
    run.history.append(row)
    tokens = sum(run.counts[task] * s.tokens for task, s in run.sources.items())
    speed = step * tokens / max(1e-9, run.elapsed - run.begun) / 1e6
    parts = [f"{row[t]['train_loss']:.4f}/{row[t]['validation_accuracy']:.3f}" for t in SHAPES]
    print(f"step {step} {run.elapsed:.1f} s {' '.join(parts)} {speed:.2f} M tokens/s", flush=True)
    if run.elapsed - run.saved > 60:
        save(run, {})
        run.saved = run.elapsed


def beaten(run: Run) -> bool:
    """Whether the other run of the arena was better when both had had their first seconds.

    Better is the higher mean validation accuracy of the tasks, then the lower mean loss.
    """
    options = run.options
    if options.arena is None or run.elapsed < options.duel:
        return False
    options.arena.mkdir(parents=True, exist_ok=True)
    mine = options.arena / f"{options.name}.json"
    if not mine.exists():
        row = run.history[-1]
        right = float(np.mean([row[task]["validation_accuracy"] for task in SHAPES]))
        loss = float(np.mean([row[task]["train_loss"] for task in SHAPES]))
        loss = loss if math.isfinite(loss) else 1e9
        mine.write_text(json.dumps([right, -loss, options.name]))
    scores = [json.loads(file.read_text()) for file in options.arena.glob("*.json")]
    lost = max(scores)[2] != options.name
    if lost:
        print(f"{options.name} ends: {scores}", flush=True)
    return lost


def save(run: Run, record: dict[str, Any]) -> dict[str, Tensor]:
    """Write the averaged weights in bfloat16, and what was done so far."""
    options = run.options
    options.out.mkdir(parents=True, exist_ok=True)
    state = {k: v.to(torch.bfloat16) for k, v in state_of_llama(run.average).items()}
    weights = options.out / "model.safetensors"
    save_file(state, weights, metadata={"format": "pt"})
    whole = record | {
        "parameters": sum(p.numel() for p in run.model.parameters()),
        "sha256": hashlib.sha256(weights.read_bytes()).hexdigest(),
        "periods": run.model.sizes.periods,
        "history": run.history,
        "options": {k: v for k, v in vars(options).items() if k not in ("data", "out", "arena")},
        "data": {"sha256": hashlib.sha256(options.data.read_bytes()).hexdigest(),
                 "rows": {task: len(s.grids) for task, s in run.sources.items()}},
        "device": torch.cuda.get_device_name() if options.device == "cuda" else options.device,
        "versions": {"python": platform.python_version(), "torch": torch.__version__,
                     "numpy": np.__version__},
    }  # fmt: skip
    text = json.dumps(whole, indent=1) + "\n"
    (options.out / "training.json").write_text(text, encoding="utf-8")
    return state


def judged(run: Run, state: dict[str, Tensor]) -> dict[str, Any]:
    """Test accuracy of the stored (rounded) weights, in float32."""
    model, options = run.average, run.options
    for parameter in model.parameters():
        parameter.copy_(parameter.to(torch.bfloat16))
    stored = state_of_llama(model)
    if any(not torch.equal(stored[name], state[name].float()) for name in state):
        raise RuntimeError("The weights to judge are not the weights that were saved.")
    torch.set_float32_matmul_precision("highest")
    found: dict[str, Puzzles] = {t: puzzles(t, options.judged, seed=2) for t in SHAPES}
    record: dict[str, Any] = {t: evaluated(model, p, WAYS) for t, p in found.items()}
    fresh = Denoiser(model.sizes, options.seed + 1).to(options.device)
    for task, test in found.items():
        record[task]["random_weights"] = float(test.solved(filled(fresh, test).tokens).mean())
        print(task, {way: round(record[task][way]["accuracy"], 4) for way in WAYS}, flush=True)
    return record


def main(arguments: list[str] | None = None) -> None:
    """Train, save, evaluate, write."""
    started = time.perf_counter()
    options = options_from(arguments)
    torch.set_float32_matmul_precision("high")
    run = Run(options, started)
    size = sum(p.numel() for p in run.model.parameters())
    print(f"{size:,} parameters on {options.device}, {run.elapsed:.1f} s", flush=True)
    train(run)
    last = run.history[-1]
    done = {"steps": last["step"], "seconds": run.elapsed, "seconds_of_compilation": run.begun}
    state = save(run, done)
    with torch.no_grad():
        evaluation = judged(run, state)
    save(run, done | {"evaluation": evaluation})
    print(f"finished after {run.elapsed:.1f} s", flush=True)


def options_from(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--arena", type=Path)
    parser.add_argument("--name", default="only")
    parser.add_argument("--device", default="cuda" if cuda else "cpu")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=cuda)
    parser.add_argument("--positions", default="grid", help="or a base, as 10000")
    tasks = "of 4×4, 6×6, 9×9"
    batch, shares = (128, 256, 512), (0.3, 0.6, 1.0)
    parser.add_argument("--batch", type=int, nargs=3, default=batch, help=f"puzzles {tasks}")
    parser.add_argument("--shares", type=float, nargs=3, default=shares, help=f"weights {tasks}")
    numbers: dict[str, tuple[type, Any]] = {
        "seconds": (float, 300.0), "steps": (int, 10**6), "seed": (int, 0), "layers": (int, 10),
        "width": (int, 256), "heads": (int, 8), "feed-forward": (int, 512), "rate": (float, 0.02),
        "other-rate": (float, 3e-3), "decay": (float, 0.01), "warmup": (int, 100),
        "memory": (float, 0.998), "unique": (float, 0.75), "moments": (int, 20),
        "watched": (int, 256), "judged": (int, 1000), "duel": (float, 90.0),
    }  # fmt: skip
    for name, (kind, default) in numbers.items():
        parser.add_argument(f"--{name}", type=kind, default=default, help=f"default {default}")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
