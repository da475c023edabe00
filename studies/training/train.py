"""Train the bundled model: a small Llama on the corpus of `studies.training.corpus`.

    PYTHONPATH=src python -m studies.training.train --data FOLDER --out FOLDER --minutes 7

An average of the weights (EMA) is what is evaluated, watched along the depth and saved; the best
on held-out text is kept. The out folder is flat: the model, the tokenizer, ``training.json`` and
``training_curve.csv``.
"""

import argparse
import copy
import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from studies.training.depth import depth_figures
from studies.training.evaluation import held_out_losses, model_scores, total, windows
from studies.training.network import averaged, dropped_out, fresh_model, parameter_groups
from studies.training.record import training_record
from studies.training.schedule import Schedule
from torch import Tensor

__all__ = ["Data", "Run", "main", "options_from", "train"]

END = 0


class Data:
    """Token rows by source: training rows on the device, held-out rows as windows."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        shards = np.load(folder / "tokens.npz")
        self.corpus = json.loads((folder / "corpus.json").read_text(encoding="utf-8"))
        self.names = list(self.corpus["sources"])
        self.rows = {name: shards[f"train_{name}"] for name in self.names}
        self.held_out = {
            name: windows(shards[f"heldout_{name}"], options.context, END) for name in self.names
        }
        self.context, self.device = options.context, torch.device(options.device)
        long = [name for name in self.names if len(self.rows[name]) > self.context]
        rows = [torch.from_numpy(self.rows[name].astype(np.int32)) for name in long]
        self.tokens = torch.cat(rows).to(self.device)
        sizes = torch.tensor([len(row) for row in rows], device=self.device)
        self.starts, self.room = sizes.cumsum(0) - sizes, sizes - self.context
        self.weights = sizes.double() ** options.temper
        self.generator = torch.Generator(self.device).manual_seed(options.seed)

    def batch(self, rows: int) -> Tensor:
        """Windows ``[rows, context + 1]`` at random offsets of random sources."""
        source = torch.multinomial(self.weights, rows, replacement=True, generator=self.generator)
        share = torch.rand(rows, device=self.device, generator=self.generator, dtype=torch.float64)
        offset = self.starts[source] + (share * self.room[source]).long()
        place = torch.arange(self.context + 1, device=self.device)
        return self.tokens[offset[:, None] + place].long()

    def fixed_batch(self, rows: int, length: int) -> Tensor:
        """The same held-out windows at every moment, from all sources in turn."""
        full = {name: inputs[(targets >= 0).all(1)] for name, (inputs, targets) in
                self.held_out.items()}  # fmt: skip
        deepest = max(len(inputs) for inputs in full.values())
        turns = [inputs[i] for i in range(deepest) for inputs in full.values() if i < len(inputs)]
        return torch.stack(turns[:rows])[:, :length].to(self.device)


class Run:
    """The state of one training run: the model, its average, the clock and what was noted."""

    def __init__(self, options: argparse.Namespace, data: Data) -> None:
        self.options, self.data, self.device = options, data, torch.device(options.device)
        sizes = {
            "vocab_size": data.corpus["pieces"],
            "hidden_size": options.width,
            "intermediate_size": options.feed_forward,
            "num_hidden_layers": options.layers,
            "num_attention_heads": options.heads,
            "num_key_value_heads": options.kv_heads,
            "max_position_embeddings": options.context,
        }
        self.model = fresh_model(sizes, options.seed).to(self.device)
        self.model.config.attention_dropout = options.attention_dropout
        for layer in self.model.model.layers:
            layer.self_attn.attention_dropout = options.attention_dropout
        self.shadow = fresh_model(sizes, options.seed).to(self.device).eval()
        self.random = copy.deepcopy(self.shadow)
        self.autocast = self.device.type == "cuda"
        self.watched = data.fixed_batch(options.watched_rows, options.watched_length)
        self.curve: list[dict[str, float]] = []
        self.history: list[dict[str, float]] = []
        self.best = {"step": 0, "heldout_loss": float("inf")}
        self.best_state = {k: v.clone() for k, v in self.shadow.state_dict().items()}
        self.compiled = False
        self.start = time.perf_counter()

    @property
    def elapsed(self) -> float:
        """Seconds since the run began."""
        return time.perf_counter() - self.start

    def held_out_loss(self) -> float:
        """Nats per held-out token of the averaged weights, on a part of the windows."""
        scores = model_scores(self.shadow, self.autocast)
        limit = self.options.heldout_windows
        return total(held_out_losses(scores, self.data.held_out, limit=limit)).mean

    def watch(self, step: int, rate: float) -> None:
        """One row of the training curve."""
        tokens = step * self.options.batch * self.options.context
        row = {"step": step, "tokens": tokens, "seconds": self.elapsed, "learning_rate": rate}
        row |= {"heldout_loss": self.held_out_loss(), **depth_figures(self.shadow, self.watched)}
        self.curve.append(row)
        print(json.dumps({k: round(v, 5) for k, v in row.items()}), flush=True)


def train(run: Run) -> Schedule:
    """Train until the steps or the time are used up; the run keeps the best averaged weights."""
    options, model = run.options, run.model.train()
    schedule = Schedule(
        options.rate, options.warmup, options.decay, options.steps, 60 * options.minutes,
        options.patience,
    )  # fmt: skip
    undo = dropped_out(model, options.dropout)
    groups = parameter_groups(model, options.weight_decay)
    optimiser = torch.optim.AdamW(
        groups, lr=0.0, betas=(0.9, options.beta2), fused=run.device.type == "cuda"
    )
    loss_of, step, moment = _loss_function(run), 0, 0
    summed = torch.zeros((), device=run.device)
    while not schedule.over(step, run.elapsed):
        rate = schedule.rate(step, run.elapsed)
        if step == moment:
            run.watch(step, rate)
            moment = _next_moment(step, options.moments - len(run.curve), schedule.horizon)
        for group in optimiser.param_groups:
            group["lr"] = rate
        loss = loss_of(run.data.batch(options.batch))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), options.clip)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        step += 1
        averaged(run.shadow, model, step, options.memory)
        summed += loss.detach()
        if step % options.every == 0 or step == schedule.horizon:
            _evaluate(run, schedule, step, float(summed) / (step - _last_step(run)))
            summed.zero_()
    if not run.history or _last_step(run) < step:
        _evaluate(run, schedule, step, float(summed) / (step - _last_step(run)))
    run.watch(step, rate)
    undo()
    return schedule


def _last_step(run: Run) -> int:
    return int(run.history[-1]["step"]) if run.history else 0


def _next_moment(step: int, left: int, horizon: int) -> int:
    """Evenly spaced in log(step) up to the horizon, which holds the last moment by itself."""
    if step == 0:
        return 1
    if left < 2:
        return -1
    return max(step + 1, round(step * (max(horizon, step + 1) / step) ** (1 / left)))


def _evaluate(run: Run, schedule: Schedule, step: int, train_loss: float) -> None:
    held_out = run.held_out_loss()
    better = schedule.told(held_out)
    if better:
        run.best = {"step": step, "heldout_loss": held_out}
        for name, tensor in run.shadow.state_dict().items():
            run.best_state[name].copy_(tensor)
    row = {"step": step, "seconds": run.elapsed, "train_loss": train_loss, "heldout_loss": held_out}
    run.history.append(row)
    speed = step * run.options.batch * run.options.context / run.elapsed
    print(
        f"step {step}/{schedule.horizon}  {run.elapsed:6.1f} s  train {train_loss:.4f}  "
        f"held-out {held_out:.4f}{' *' if better else ''}  {speed / 1e6:.3f} M tokens/s  "
        f"decay since {schedule.falling_since}",
        flush=True,
    )


def _loss_function(run: Run) -> Callable[[Tensor], Tensor]:
    """Mean nats per token of a batch; compiled where that works."""

    def eager(batch: Tensor) -> Tensor:
        with torch.autocast(run.device.type, torch.bfloat16, enabled=run.autocast):
            logits = run.model(input_ids=batch[:, :-1], use_cache=False).logits
        return F.cross_entropy(logits.float().flatten(0, 1), batch[:, 1:].flatten())

    if not run.options.compile:
        return eager
    compiled = torch.compile(eager, dynamic=False)
    try:
        compiled(run.data.batch(run.options.batch)).backward()
    except Exception as error:  # whatever a compiler raises, the run goes on without it
        print(f"not compiled: {type(error).__name__}: {str(error)[:300]}", flush=True)
        compiled = eager
    run.compiled = compiled is not eager
    run.model.zero_grad(set_to_none=True)
    return compiled


def options_from(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda" if cuda else "cpu")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=cuda)
    integers = {
        "steps": 8000, "seed": 0, "layers": 14, "width": 192, "heads": 8, "kv-heads": 4,
        "feed-forward": 400, "context": 256, "batch": 256, "warmup": 200, "every": 100,
        "patience": 8, "heldout-windows": 64, "moments": 20, "watched-rows": 16,
        "watched-length": 128,
    }  # fmt: skip
    reals = {
        "minutes": 7.0, "rate": 3e-3, "decay": 0.4, "weight-decay": 0.1, "beta2": 0.95,
        "clip": 1.0, "dropout": 0.1, "attention-dropout": 0.1, "memory": 0.998, "temper": 0.7,
    }  # fmt: skip
    for name, value in integers.items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"default {value}")
    for name, value in reals.items():
        parser.add_argument(f"--{name}", type=float, default=value, help=f"default {value}")
    options = parser.parse_args(arguments)
    options.given = sys.argv[1:] if arguments is None else arguments
    return options


def save(run: Run) -> None:
    """Write the best averaged weights as a plain bfloat16 Llama, and the tokenizer beside it."""
    out = run.options.out
    out.mkdir(parents=True, exist_ok=True)
    run.shadow.load_state_dict(run.best_state)
    shipped = copy.deepcopy(run.shadow).to("cpu", torch.bfloat16)
    shipped.config.use_cache = shipped.generation_config.use_cache = True
    shipped.save_pretrained(out)
    (out / "model.safetensors").chmod(0o644)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(run.options.data / name, out / name)
    pd.DataFrame(run.curve).to_csv(out / "training_curve.csv", index=False)


def main(arguments: list[str] | None = None) -> dict[str, object]:
    """Train, save, and write down what was done."""
    options = options_from(arguments)
    run = Run(options, Data(options.data, options))
    print(f"{run.shadow.num_parameters():,} parameters on {options.device}", flush=True)
    schedule = train(run)
    seconds = run.elapsed
    save(run)
    record = training_record(run, schedule, seconds)
    text = json.dumps(record, indent=2, ensure_ascii=False, default=str)
    (options.out / "training.json").write_text(text + "\n", encoding="utf-8")
    print(json.dumps(record["heldout"]["all"]), flush=True)
    return record


if __name__ == "__main__":
    main()
