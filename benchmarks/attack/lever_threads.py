"""Several threads that couple one model, cut it open, or let it agree, while another runs it.

Question: is a pass that is coupled, or whose block is copied, exactly the pass of its own thread,
and does every other thread get the output of the bare model?

Peer: the same lever in a process of one thread, on a twin of the model, before a trial begins.

* ``coupled``: two threads couple replicas with strengths of their own, a third runs the model. On a
  model whose text and image are separate streams (SD3), where image keys are looked for by a trial
  run of a block, and on one with image tokens alone (DiT).
* ``cut``: two threads cut a block open on inputs of their own, a third runs the model (DiT).
* ``agreed``: two threads draw the model and another one together with strengths of their own, a
  third runs the model (GPT-2).

Run: ``python -m benchmarks.attack.lever_threads``; writes
``benchmarks/results/attack_lever_threads.json``.
"""

import argparse
from pathlib import Path

import torch
from tests import networks
from torch import Tensor, nn

from benchmarks.attack.threads import Maker, Trial, attacked, tell
from flowscope.levers import consensus, couple
from flowscope.probes.block_callable import live_block

__all__ = ["AgreedTrial", "CoupledTrial", "CutTrial", "attacked_levers"]

RESULT = Path(__file__).parents[1] / "results" / "attack_lever_threads.json"
_STRENGTHS = (0.3, 0.9)
_REPEATS = 3


class CoupledTrial(Trial):
    """Two coupled threads, and one without a lever."""

    def __init__(self, make: Maker, seed: int) -> None:
        super().__init__(make, seed)
        twin, _ = make()
        self._expected = [self._coupled(twin, which)[0] for which in (0, 1)]

    def coupled(self) -> None:
        """Couple in two threads, and run the model in a third."""
        jobs = [lambda which=which: self._couple(which) for which in (0, 1)]
        self._together(*jobs, lambda: self._untapped(1))

    def _couple(self, which: int) -> None:
        for _ in range(_REPEATS):
            output, calls = self._coupled(self._model, which)
            self.counts["wrong_outputs"] += not torch.equal(output, self._expected[which])
            self.counts["miscounts"] += set(calls) != {1}

    @torch.no_grad()
    def _coupled(self, model: nn.Module, which: int) -> tuple[Tensor, list[int]]:
        """Output of a coupled pass, and how often each attention call was coupled in it."""
        with couple(model, _STRENGTHS[which]) as lever:
            output = networks.first_tensor(model(**self._inputs[which]))
        return output, [change.passes for change in lever.summary()]


class CutTrial(Trial):
    """Two threads that cut a block open, and one without a lever."""

    def __init__(self, make: Maker, seed: int) -> None:
        super().__init__(make, seed)
        twin, _ = make()
        self._expected = [self._states(twin, which) for which in (0, 1)]

    def cut(self) -> None:
        """Cut in two threads, and run the model in a third."""
        jobs = [lambda which=which: self._cut(which) for which in (0, 1)]
        self._together(*jobs, lambda: self._untapped(0))

    def _cut(self, which: int) -> None:
        for _ in range(_REPEATS):
            states = self._states(self._model, which)
            pairs = zip(states, self._expected[which], strict=True)
            self.counts["wrong_outputs"] += not all(torch.equal(x, y) for x, y in pairs)

    @torch.no_grad()
    def _states(self, model: nn.Module, which: int) -> list[Tensor]:
        """The state that entered a block, and what its attention was given."""
        live = live_block(model, self._inputs[which], 1)
        return [live.H0, *live.block.project(live.H0)]


class AgreedTrial(Trial):
    """Two threads in which the model and another one agree, and one without a lever."""

    def __init__(self, make: Maker, seed: int) -> None:
        super().__init__(make, seed)
        twin, _ = make()
        self._other = _changed(make()[0])
        self._expected = [self._agreed(twin, which) for which in (0, 1)]

    def agreed(self) -> None:
        """Agree in two threads, and run the model in a third."""
        jobs = [lambda which=which: self._agree(which) for which in (0, 1)]
        self._together(*jobs, lambda: self._untapped(1))

    def _agree(self, which: int) -> None:
        for _ in range(_REPEATS):
            pairs = zip(self._agreed(self._model, which), self._expected[which], strict=True)
            self.counts["wrong_outputs"] += not all(torch.equal(x, y) for x, y in pairs)

    @torch.no_grad()
    def _agreed(self, model: nn.Module, which: int) -> list[Tensor]:
        """Outputs of both models in consensus."""
        with consensus([model, self._other], strength=_STRENGTHS[which]) as both:
            return [networks.first_tensor(output) for output in both(**self._inputs[which])]


@torch.no_grad()
def _changed(model: nn.Module) -> nn.Module:
    for weight in model.parameters():
        weight.mul_(0.8)
    return model


def attacked_levers(trials: int) -> dict[str, dict[str, int]]:
    """Counts of all kinds after so many trials in all."""
    part = trials // 3
    return {
        **attacked(
            trials - 2 * part,
            {"coupled": CoupledTrial.coupled},
            {"sd3": networks.sd3, "dit": networks.dit},
            CoupledTrial,
        ),
        **attacked(part, {"cut": CutTrial.cut}, {"dit": networks.dit}, CutTrial),
        **attacked(part, {"agreed": AgreedTrial.agreed}, {"gpt2": networks.gpt2}, AgreedTrial),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    tell(attacked_levers(options.trials), options.trials, options.out)


if __name__ == "__main__":
    main()
