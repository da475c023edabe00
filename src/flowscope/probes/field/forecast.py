r"""What a change of one block costs, forecast from gradients and measured.

Let $y$ be drawn at every position from the model's own output, and $g_\ell = \nabla_{h_\ell}
\sum_t \log p(y_t)$. A small change $\delta$ of the state after block $\ell$ moves the output by

$$
\sum_t \mathrm{KL}(p_t\Vert p'_t) \approx \tfrac12\,\mathbb E_y\bigl[(g_\ell\cdot\delta)^2\bigr],
$$

because the covariance of such gradients is the Fisher information of the output. One set of
backward passes serves every candidate at every depth. The forecast is of second order: a change
that is not small is only ranked by it.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from flowscope.errors import InvalidInputError
from flowscope.probes.block_visit import without_cache
from flowscope.probes.field.changes import Change, run_with
from flowscope.tap import Block, Chain
from flowscope.tap.dispatch import thread_watchers
from flowscope.tap.trace import arguments_of, mapped, outputs_in, tensors_in

__all__ = ["Forecast", "forecast_changes", "measured_divergence"]

Array = NDArray[np.float64]
Logits = Callable[[Any], Tensor]


@dataclass(frozen=True, kw_only=True, eq=False)
class Forecast:
    """Forecast cost of changes of single blocks.

    Attributes
    ----------
    slopes
        g·δ of every candidate, prompt and draw.
    tokens
        Positions of each prompt that count.
    relative_error
        ‖δ‖/‖state‖ of every candidate and prompt: a peer that knows no gradient.
    turn
        1 − cos(state, changed state), mean over positions: block influence where the block is
        skipped (ShortGPT).
    """

    slopes: Float[Array, "candidates prompts draws"]
    tokens: Float[Array, "prompts"]
    relative_error: Float[Array, "candidates prompts"]
    turn: Float[Array, "candidates prompts"]

    @property
    def draws(self) -> Float[Array, "candidates prompts draws"]:
        """Forecast KL of the output from each draw alone, nats per token."""
        return np.asarray(0.5 * np.square(self.slopes) / self.tokens[:, None])

    @property
    def divergence(self) -> Float[Array, "candidates prompts"]:
        """Forecast KL of the output, nats per token: the mean over draws."""
        return np.asarray(self.draws.mean(-1))


def forecast_changes(
    model: nn.Module,
    inputs: Mapping[str, Any],
    chain: Chain,
    changes: Sequence[tuple[int, Change]],
    *,
    mask: Tensor | None = None,
    draws: int = 64,
    seed: int = 0,
    logits: Logits = lambda output: output.logits,
) -> Forecast:
    """Forecast what changes of single blocks do to the output of a model.

    Parameters
    ----------
    model, inputs
        A model in evaluation mode, and one batch of its keyword arguments.
    chain
        Its blocks, from `flowscope.Tap.anatomy`.
    changes
        Candidates: index of a block, and what is done to it.
    mask
        Positions that count, ``[batch, tokens]``; all by default.
    draws
        Outputs drawn; each costs one backward pass.
    seed
        Of the drawn outputs.
    logits
        Reads the logits ``[batch, tokens, outcomes]`` from what the model returns.

    Raises
    ------
    InvalidInputError
        For no candidate, a block that is not there, fewer than two draws, a model in training mode,
        or an output that is not ``[batch, tokens, outcomes]`` or not finite.
    """
    _check(model, chain, changes, draws)
    deltas: list[Tensor] = [torch.empty(0)] * len(changes)
    errors = [np.empty(0)] * len(changes)
    turns = [np.empty(0)] * len(changes)

    def on_block(visit: "_Visit") -> None:
        for number, (index, change) in enumerate(changes):
            if index == visit.block.index:
                after = visit.after
                changed = change.state(visit.module, visit.before, after, visit.again)
                deltas[number] = (changed - after).float()
                errors[number] = _relative(deltas[number], after)
                turns[number] = _turned(changed, after, mask)

    with torch.no_grad():
        _pass(model, inputs, chain, on_block)
    hidden: dict[int, Tensor] = {}

    def keep(visit: "_Visit") -> None:
        hidden[visit.block.index] = visit.after

    with torch.enable_grad():
        z = logits(_pass(model, inputs, chain, keep, leaf=True)).float()
    _check_logits(z)
    counted = _positions(mask, z)
    used = sorted({index for index, _ in changes})
    slopes = np.empty((len(changes), len(z), draws))
    p = torch.softmax(z.detach(), -1)
    drawing = _Drawing(p, seed)
    expected = -p * counted[..., None]
    for draw in range(draws):
        # the gradient of log p(y) by the logits: one at the outcome drawn, less p
        pull = expected.scatter_add(-1, drawing.next(), counted[..., None].to(expected))
        gradients = torch.autograd.grad(
            z, [hidden[index] for index in used], pull, retain_graph=draw + 1 < draws
        )
        by_layer = dict(zip(used, gradients, strict=True))
        for number, (index, _) in enumerate(changes):
            slope = (by_layer[index].float() * deltas[number]).flatten(1).sum(1)
            slopes[number, :, draw] = slope.double().cpu().numpy()
    return Forecast(
        slopes=slopes,
        tokens=counted.sum(1).double().cpu().numpy(),
        relative_error=np.stack(errors),
        turn=np.stack(turns),
    )


@torch.no_grad()
def measured_divergence(
    model: nn.Module,
    inputs: Mapping[str, Any],
    chain: Chain,
    change: tuple[int, Change],
    *,
    mask: Tensor | None = None,
    logits: Logits = lambda output: output.logits,
    plain: Tensor | None = None,
) -> Float[Array, "prompts"]:
    """KL of the output without a change from that with it, nats per token of each prompt.

    Parameters
    ----------
    model, inputs, chain, mask, logits
        As for `forecast_changes`.
    change
        Index of a block, and what is done to it.
    plain
        Logits of the model as it is on these inputs, where they are known: one pass less.
    """
    _check(model, chain, [change], 2)
    whole = logits(model(**inputs)) if plain is None else plain
    _check_logits(whole)

    def swapped(visit: "_Visit") -> Tensor | None:
        if visit.block.index != change[0]:
            return None
        return change[1].state(visit.module, visit.before, visit.after, visit.again)

    other = logits(_pass(model, inputs, chain, swapped))
    counted = _positions(mask, whole)
    return np.array([_divergence(*rows) for rows in zip(whole, other, counted, strict=True)])


def _divergence(z: Tensor, other: Tensor, counted: Tensor) -> float:
    """Mean over positions of KL(softmax z ‖ softmax other).

    In double precision, because the sum over outcomes of single precision is off by more than a
    small change costs.
    """
    p, q = (torch.log_softmax(x[counted].double(), -1) for x in (z, other))
    each = torch.where(p > -torch.inf, p.exp() * (p - q), 0.0).sum(-1)
    return max(float(each.mean()), 0.0)


class _Drawing:
    """Outcomes drawn at every position from its probabilities; the same on every device."""

    def __init__(self, p: Float[Tensor, "batch N outcomes"], seed: int) -> None:
        self._device = p.device
        self._sums = torch.stack([row.double().cumsum(-1).float() for row in p.cpu()])
        self._generator = torch.Generator().manual_seed(seed)

    def next(self) -> Int[Tensor, "batch N 1"]:
        """Outcomes of the next draw; one of probability 0 is never drawn."""
        whole = self._sums[..., -1:]
        at = torch.rand(whole.shape, generator=self._generator) * whole
        found = torch.searchsorted(self._sums, at, right=True)
        return found.clamp_max(self._sums.shape[-1] - 1).to(self._device)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Visit:
    """One call of a block: the states around it, and how to run it again with other weights."""

    block: Block
    module: nn.Module
    before: Tensor
    after: Tensor
    again: Callable[[Mapping[str, Tensor]], Tensor]


Visitor = Callable[[_Visit], Tensor | None]


def _pass(
    model: nn.Module,
    inputs: Mapping[str, Any],
    chain: Chain,
    visitor: Visitor,
    *,
    leaf: bool = False,
) -> Any:
    """Run the model and show every block to the visitor; a tensor it returns replaces the state.

    With ``leaf`` the state that enters the first block starts the graph of derivatives.
    """
    root: nn.Module = getattr(model, "_orig_mod", model)
    visits: dict[str, list[Block]] = {}
    for block in chain.blocks:
        visits.setdefault(block.path, []).append(block)
    counts = dict.fromkeys(visits, 0)
    stream = chain.streams[0]
    repeated = False  # whether a block is being run again, for the visitor

    def watcher(path: str, module: nn.Module) -> Callable[..., Any]:
        def around(proceed: Callable[..., Any], args: Any, kwargs: Any) -> Any:
            if repeated:
                return proceed(*args, **kwargs)
            block = visits[path][counts[path]]
            counts[path] += 1
            before = dict(tensors_in(arguments_of(module, args, kwargs)))[stream]
            if leaf and block.index == 0:
                start = before.detach().clone().requires_grad_()
                args, kwargs = (
                    mapped(x, Tensor, lambda t: start if t is before else t) for x in (args, kwargs)
                )
                before = start
            output = proceed(*args, **kwargs)
            place = block.places[stream]
            after = outputs_in(output)[place]

            def again(weights: Mapping[str, Tensor]) -> Tensor:
                nonlocal repeated
                repeated = True
                try:
                    return outputs_in(run_with(module, weights, args, kwargs))[place]
                finally:
                    repeated = False

            state = visitor(
                _Visit(block=block, module=module, before=before, after=after, again=again)
            )
            if state is None:
                return output
            return mapped(output, Tensor, lambda t: state.to(t.dtype) if t is after else t)

        return around

    with ExitStack() as undo:
        for path in visits:
            module = root.get_submodule(path)
            undo.callback(thread_watchers().add(module, watcher(path, module)))
        return model(**without_cache(root, inputs))


def _relative(delta: Tensor, after: Tensor) -> Array:
    size = after.float().flatten(1).norm(dim=1)
    return np.asarray((delta.flatten(1).norm(dim=1) / size).double().cpu().numpy())


def _turned(changed: Tensor, after: Tensor, mask: Tensor | None) -> Array:
    cosine = torch.cosine_similarity(changed.float(), after.float(), dim=-1)
    counted = _positions(mask, after).to(cosine)
    turn = ((1 - cosine) * counted).sum(1) / counted.sum(1)
    return np.asarray(turn.double().cpu().numpy())


def _check(
    model: nn.Module, chain: Chain, changes: Sequence[tuple[int, Change]], draws: int
) -> None:
    if model.training:
        raise InvalidInputError("the model is in training mode; call model.eval() first.")
    if not changes:
        raise InvalidInputError("a forecast needs at least one change; found none.")
    for index, _ in changes:
        if not 0 <= index < len(chain):
            raise InvalidInputError(
                f"a change must name a block from 0 to {len(chain) - 1}; got {index!r}."
            )
    if draws < 2:
        raise InvalidInputError(f"draws must be at least 2; got {draws!r}.")


def _positions(mask: Tensor | None, z: Tensor) -> Tensor:
    """Positions that count; every prompt must have one."""
    counted = torch.ones(z.shape[:2]) if mask is None else mask
    if counted.shape != z.shape[:2] or not bool(counted.bool().any(1).all()):
        raise InvalidInputError(
            f"mask must be [batch, tokens], here {tuple(z.shape[:2])}, with a position that counts "
            f"in every row; found shape {tuple(counted.shape)}."
        )
    return counted.bool().to(z.device)


def _check_logits(z: Tensor) -> None:
    """Refuse an output from which nothing can be drawn; −∞ is an outcome that never occurs."""
    if z.ndim != 3 or z.shape[-1] < 2:
        raise InvalidInputError(
            "a forecast needs logits [batch, tokens, outcomes]; the model returned "
            f"{tuple(z.shape)}."
        )
    finite = torch.isfinite(torch.logsumexp(z, -1))
    if not bool(finite.all()):
        raise InvalidInputError(
            f"the output of the model is not finite at {int((~finite).sum())} of {finite.numel()} "
            "positions: it overflows. Load the model in a wider precision."
        )
