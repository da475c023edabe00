"""Several threads on one tapped model.

Question: does a tap hear exactly the passes of its own thread, does every other thread get the
output of the bare model, and is the model itself again after the last tap has left?

Peer: the bare model, and a tap in a process of one thread; both are run before a trial begins.
Four kinds of trials, each on models whose attention is read in place, through a switched backend,
inside ``nn.MultiheadAttention`` and in a compiled model:

* ``bare``: one thread opens taps, another runs the model without any.
* ``tapped``: two threads open taps of their own.
* ``handed``: a tap is opened in one thread and closed in another, at a random moment.
* ``failing``: passes of a tapped thread end in exceptions while another thread runs the model.

Run: ``python -m benchmarks.attack.threads``; writes ``benchmarks/results/attack_threads.json``.
"""

import argparse
import json
import random
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from tests import networks
from torch import Tensor, nn

from benchmarks.machine import described
from flowscope import Tap
from flowscope.errors import FlowscopeError

__all__ = ["COUNTS", "KINDS", "SUBJECTS", "Maker", "Trial", "attacked", "tell"]

RESULT = Path(__file__).parents[1] / "results" / "attack_threads.json"
COUNTS = ("broken", "miscounts", "wrong_outputs", "raw_errors")
_ATTENTION = F.scaled_dot_product_attention
_PASSES = 4


def _compiled() -> tuple[nn.Module, dict[str, Any]]:
    model, batch = networks.gpt2()
    model.compile(backend="eager")
    return model, batch


Maker = Callable[[], tuple[nn.Module, dict[str, Any]]]
SUBJECTS: dict[str, Maker] = {
    "gpt2": networks.gpt2,
    "gemma2": networks.gemma2,
    "encoder": networks.encoder,
    "compiled": _compiled,
}


@dataclass
class Events:
    """What the listeners of one pass received."""

    queries: list[Tensor] = field(default_factory=list)
    blocks: list[Tensor] = field(default_factory=list)

    def listen(self, tap: Tap) -> None:
        """Add two listeners to a tap."""
        tap.on_attention(lambda call: self.queries.append(call.q))
        tap.on_block(lambda event: self.blocks.append(event.hidden_out))

    def equals(self, other: "Events") -> bool:
        """Whether both hold the same tensors, bit for bit."""
        return _equal(self.queries, other.queries) and _equal(self.blocks, other.blocks)

    def begins(self, other: "Events") -> bool:
        """Whether these are the first events of ``other``."""
        queries, blocks = other.queries[: len(self.queries)], other.blocks[: len(self.blocks)]
        return _equal(self.queries, queries) and _equal(self.blocks, blocks)

    def clear(self) -> None:
        """Forget everything."""
        self.queries.clear()
        self.blocks.clear()


def _equal(left: list[Tensor], right: list[Tensor]) -> bool:
    return len(left) == len(right) and all(map(torch.equal, left, right))


class _Thrown(BaseException):
    """No ``Exception``, as a keyboard interrupt is none."""


class Trial:
    """One model, what it should answer, and the counts of what went wrong.

    Parameters
    ----------
    make
        Makes the model and one batch for it; called twice.
    seed
        Decides inputs and moments.
    """

    def __init__(self, make: Maker, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self._model, batch = make()
        self._random = random.Random(seed)
        flipped = {name: x.flip(1) if x.ndim > 1 else x for name, x in batch.items()}
        self._inputs = [batch, flipped]
        self._bare = [self._output(inputs) for inputs in self._inputs]
        twin, _ = make()  # the trial itself meets a model that was never probed
        self._tapped = [_reference(twin, inputs) for inputs in self._inputs]
        self._before = _state(self._model)

    def run(self, attack: Callable[[Any], None]) -> Counter[str]:
        """Make one attack, a method of this class, and return its counts."""
        attack(self)
        same = _state(self._model) == self._before
        if not same or not all(map(torch.equal, map(self._output, self._inputs), self._bare)):
            self.counts["broken"] += 1
        return self.counts

    def bare(self) -> None:
        """One thread with taps, one without."""
        self._together(lambda: self._taps(0), lambda: self._untapped(1))

    def tapped(self) -> None:
        """Two threads with taps of their own."""
        self._together(lambda: self._taps(0), lambda: self._taps(1))

    def failing(self) -> None:
        """Exceptions in the passes of one thread, none in those of the other."""
        self._together(self._failures, lambda: self._untapped(1))

    def handed(self) -> None:
        """A tap that another thread closes."""
        opened, tap = threading.Event(), Tap(self._model)
        moment = self._random.random() * 0.01

        def opener() -> None:
            events = Events()
            tap.__enter__()
            events.listen(tap)
            opened.set()
            for _ in range(_PASSES):
                events.clear()
                self._check(0, self._output(self._inputs[0]), tapped=None)
                if not events.begins(self._tapped[0][0]):
                    self.counts["miscounts"] += 1

        def closer() -> None:
            opened.wait(10)
            threading.Event().wait(moment)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tap.__exit__(None, None, None)
            self._untapped(1)

        self._together(opener, closer)

    def _together(self, *jobs: Callable[[], None]) -> None:
        start = threading.Barrier(len(jobs))

        def run(job: Callable[[], None]) -> None:
            try:
                start.wait(10)
                job()
            except FlowscopeError:
                self.counts["sentences"] += 1
            except Exception as error:
                self.counts["raw_errors"] += 1
                self.counts[f"raw {type(error).__name__}"] += 1
            if torch.overrides._get_current_function_mode() is not None:
                self.counts["broken"] += 1

        threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    @torch.no_grad()
    def _output(self, inputs: dict[str, Any]) -> Tensor:
        return networks.first_tensor(self._model(**inputs))

    def _check(self, which: int, output: Tensor, *, tapped: bool | None) -> None:
        """Count an output that is not the one expected; None: the tap may be there or not."""
        answers = [self._bare[which]] if not tapped else []
        answers += [self._tapped[which][1]] if tapped is not False else []
        if not any(torch.equal(output, answer) for answer in answers):
            self.counts["wrong_outputs"] += 1

    def _untapped(self, which: int) -> None:
        for _ in range(4 * _PASSES):
            self._check(which, self._output(self._inputs[which]), tapped=False)
            if F.scaled_dot_product_attention is not _ATTENTION:  # another thread's routing
                self.counts["broken"] += 1

    def _taps(self, which: int) -> None:
        events = Events()
        for _ in range(2):
            with Tap(self._model) as tap:
                events.listen(tap)
                for _ in range(_PASSES // 2):
                    events.clear()
                    self._check(which, self._output(self._inputs[which]), tapped=True)
                    if not events.equals(self._tapped[which][0]):
                        self.counts["miscounts"] += 1

    def _failures(self) -> None:
        for number in range(_PASSES):
            error = (ZeroDivisionError, _Thrown)[number % 2]

            def fail(event: Any, error: type[BaseException] = error) -> None:
                if event.site.index == 1:
                    raise error

            with suppress(error), Tap(self._model) as tap:
                (tap.on_attention if self._random.random() < 0.5 else tap.on_block)(fail)
                self._output(self._inputs[0])
            if torch.overrides._get_current_function_mode() is not None:
                self.counts["broken"] += 1
        self._taps(0)


@torch.no_grad()
def _reference(model: nn.Module, inputs: dict[str, Any]) -> tuple[Events, Tensor]:
    """What one tap in one thread hears, and the output under it."""
    events = Events()
    with Tap(model) as tap:
        events.listen(tap)
        output = networks.first_tensor(model(**inputs))
    return events, output


def _state(model: nn.Module) -> list[Any]:
    """Everything on the model, and around it, that a tap could have left behind."""
    config = getattr(model, "config", None)
    tensors = [(id(t), t._version) for t in (*model.parameters(), *model.buffers())]
    stance = getattr(sys.modules.get("torch._dynamo.eval_frame"), "_stance", None)
    return [
        [_traces(module) for module in model.modules()],
        vars(config).get("_attn_implementation_internal") if config is not None else None,
        getattr(config, "_attn_implementation", None),
        tensors,
        F.scaled_dot_product_attention is _ATTENTION,
        type(F) is ModuleType,
        stance is None or (type(stance).__name__, stance.stance),
    ]


def _traces(module: nn.Module) -> list[Any]:
    """Attributes, hooks, forward and compiled call of one module."""
    hooks = {name: list(value) for name, value in vars(module).items() if name.endswith("_hooks")}
    forward = getattr(module.forward, "__func__", module.forward)
    return [sorted(vars(module)), hooks, forward, id(module._compiled_call_impl), module.training]


KINDS: dict[str, Callable[[Trial], None]] = {
    "bare": Trial.bare,
    "tapped": Trial.tapped,
    "handed": Trial.handed,
    "failing": Trial.failing,
}


def attacked(
    trials: int,
    kinds: Mapping[str, Callable[[Any], None]] = KINDS,
    subjects: Mapping[str, Maker] = SUBJECTS,
    trial: type[Trial] = Trial,
) -> dict[str, dict[str, int]]:
    """Counts of every kind after so many trials in all, models taken in turn."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    counts = {kind: Counter(trials=0, **dict.fromkeys(COUNTS, 0)) for kind in kinds}
    makers = list(subjects.values())
    try:
        for number in range(trials):
            kind = list(kinds)[number % len(kinds)]
            outcome = trial(makers[number // len(kinds) % len(makers)], number).run(kinds[kind])
            counts[kind].update(outcome)
            counts[kind]["trials"] += 1
            counts[kind]["trials_with_a_failure"] += any(outcome[name] for name in COUNTS)
    finally:
        sys.setswitchinterval(interval)
    return {kind: dict(count) for kind, count in counts.items()}


def tell(counts: Mapping[str, Mapping[str, int]], trials: int, out: Path) -> None:
    """Write the counts, print them, and end with an error where a promise is broken."""
    figures = {"machine": described(), "trials": trials, "kinds": counts}
    out.write_text(json.dumps(figures, indent=2) + "\n")
    for kind, count in counts.items():
        print(f"{kind:<10}", *(f"{name} {count.get(name, 0)}" for name in ("trials", *COUNTS)))
    if any(count[name] for count in counts.values() for name in COUNTS):
        sys.exit("A promise is broken: see the counts above.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    tell(attacked(options.trials), options.trials, options.out)


if __name__ == "__main__":
    main()
