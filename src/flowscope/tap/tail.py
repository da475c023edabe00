"""The tail: everything a model does after its last block, as a program that can be run again.

``tail(h)`` is the final norm, the transform of a masked-language head, the output matrix with its
bias, the logit scale, the soft-cap: whatever the model itself did between the last block and its
output, replayed operation by operation. Nothing is assumed about names; a tail is accepted only
when replaying it on the last hidden state gives the model's own output again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from flowscope.errors import InvalidInputError
from flowscope.flows.products import (
    HALVES,
    LinearProduct,
    exact_product,
    has_wide_result,
    own_product,
)
from flowscope.records import Unavailable
from flowscope.tap.trace import ModuleCall, Op, Ref, Trace, mapped, tensors_in

__all__ = ["LinearOutput", "Operands", "Tail", "tail_of"]

Operands: TypeAlias = Literal["exact", "model"]
"""What an output product reads: the state in float32, or as the model itself rounds it."""

# Replays repeat the same operations; a different batching of a matrix product reorders its sums.
_TOLERANCE = 32.0
# What may follow an output product without changing what it says.
_CASTS = {"to", "float", "contiguous"}
_OFF_LOADED = Unavailable("weights of the tail are off-loaded: present only while the model runs")


@dataclass(frozen=True, kw_only=True, eq=False)
class Tail:
    """What follows the last block.

    Attributes
    ----------
    target
        The output it leads to, e.g. ``"logits"``.
    operations
        Names of the operations, in order.
    positionwise
        Whether each position can be replayed alone: then ``tail`` takes any ``[n, 1, d]``.
    width
        Size of the last axis of the output (the vocabulary of a language model).
    error
        Largest difference to the model's own output when it was accepted.
    """

    target: str
    operations: tuple[str, ...]
    positionwise: bool
    width: int
    error: float
    _program: "_Program"

    def __call__(self, hidden: Tensor) -> Tensor:
        """The model's output from a hidden state of the last block's shape and dtype.

        Parameters
        ----------
        hidden
            ``[rows, length, d]``; when `positionwise`, any rows and length; on any device.
        """
        return self._program.run(hidden)

    def release(self) -> None:
        """Let go of off-loaded weights, which the first call of this or a wider tail brought."""
        self._program.brought.clear()

    @property
    def device(self) -> torch.device:
        """Where its weights are; the CPU when it has none."""
        return self._program.device

    @property
    def weights(self) -> tuple[Tensor, ...]:
        """The parameters and buffers it rests on, off-loaded ones left out."""
        return tuple(self._program.constants.values())

    def widened(self, operands: Operands = "exact") -> "Tail":
        """The same tail with a float32 result, for hidden states in float32.

        Statistics of logits should not carry the rounding of a half-precision output product.
        Half-precision weights of products are read as they are on a CUDA device
        (`flowscope.flows.products`); small ones and those elsewhere are copied, as they are now.

        Parameters
        ----------
        operands
            ``"exact"``: everything in float32. ``"model"``: everything up to the operands of the
            last product as the model computes it, the product's result in float32.
        """
        return replace(self, _program=self._program.widened(operands))

    def rows(self, hidden: Tensor, out: Tensor | None = None) -> Tensor:
        """The output of each row of ``[..., d]`` on its own: ``[..., width]``.

        Where the tail ends in a product with half-precision weights on a CUDA device, the result
        is written into ``out``, if given; elsewhere it is a tensor of its own.
        """
        if not self.positionwise:
            raise InvalidInputError(
                "This tail mixes positions (it pools or reshapes them), so rows cannot be read "
                "apart; call the tail on a whole hidden state instead."
            )
        rows = self._program.run(hidden.reshape(-1, 1, hidden.shape[-1]), out)
        return rows.reshape(*hidden.shape[:-1], self.width)

    def linear_output(self) -> "LinearOutput | Unavailable":
        """The tail in two parts, when its last operation is a product with a weight."""
        if not self.positionwise:
            return Unavailable("the tail mixes positions")
        return self._program.split()


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearOutput:
    """A tail that ends in z = U x + c: the product, and what leads to it.

    Attributes
    ----------
    weight, bias
        U ``[V, d]`` and c ``[V]``, c zero where the model has none.
    """

    weight: Tensor
    bias: Tensor
    _program: "_Program"

    def states(self, hidden: Tensor) -> Tensor:
        """The states x that U multiplies, of each row of ``[..., d]``."""
        rows = self._program.run(hidden.reshape(-1, 1, hidden.shape[-1]))
        return rows.reshape(*hidden.shape[:-1], rows.shape[-1])


@dataclass(frozen=True, kw_only=True, eq=False)
class _Program:
    steps: tuple[Op, ...]
    constants: dict[int, Tensor]
    start: int
    end: int
    own: torch.dtype  # of the model's hidden states
    dtype: torch.dtype | None = None  # hidden states are brought to it
    loans: dict[int, "_Loan"] = field(default_factory=dict)
    brought: dict[tuple[int, bool], Tensor] = field(default_factory=dict)  # one for wider programs

    @property
    def device(self) -> torch.device:
        """Of the last of its constants, which is the output's own."""
        found = [constant.device for constant in self.weights().values()]
        return found[-1] if found else torch.device("cpu")

    def weights(self) -> dict[int, Tensor]:
        """Constants, off-loaded ones brought through the hooks of their modules."""
        found = dict(self.constants)
        for ref, loan in self.loans.items():
            key = ref, loan.lifted
            if key not in self.brought:
                self.brought[key] = loan.fetched()
            found[ref] = self.brought[key]
        return found

    def widened(self, operands: Operands) -> "_Program":
        """The same program with a float32 result."""
        weights = self.weights()
        products = {i: w for i, w in self._products() if weights[w].dtype in HALVES}
        last = max(products, default=-1) if operands == "model" else -1
        steps, kept = [], set[int]()
        for i, op in enumerate(self.steps):
            wide = i in products and has_wide_result(weights[products[i]])
            if i < last or wide:
                kept |= set(op.inputs)
            if i == last:
                rounded = partial(own_product, dtype=weights[products[i]].dtype)
                op = replace(op, func=LinearProduct(rounded))
            elif wide and i > last:
                product = exact_product(weights[products[i]], stays=products[i] not in self.loans)
                op = replace(op, func=LinearProduct(product))
            elif i > last:
                args, kwargs = mapped((op.args, op.kwargs), torch.dtype, _lifted)
                op = replace(op, args=args, kwargs=kwargs)
            steps.append(op)
        constants = {ref: c if ref in kept else _wide(c) for ref, c in self.constants.items()}
        loans = {
            ref: loan if ref in kept else replace(loan, lifted=True)
            for ref, loan in self.loans.items()
        }
        own = self.own if last >= 0 else None
        return replace(self, steps=tuple(steps), constants=constants, loans=loans, dtype=own)

    def _products(self) -> Iterator[tuple[int, int]]:
        """Products with a weight: the number of each step and of its weight."""
        known = self.constants.keys() | self.loans.keys()
        for number, op in enumerate(self.steps):
            weight = [*op.args, *op.kwargs.values()][1:2]
            is_product = op.func is torch.nn.functional.linear and isinstance(weight[0], Ref)
            if is_product and weight[0].value in known:
                yield number, weight[0].value

    def split(self) -> LinearOutput | Unavailable:
        """The program up to its last product, and that product; nothing but casts may follow."""
        steps = _before_casts(self.steps)
        last = steps[-1].func if steps else None
        if last is not torch.nn.functional.linear and not isinstance(last, LinearProduct):
            return Unavailable("its last operation is not a product with a weight")
        product, weights = steps.pop(), self.weights()
        given = [*product.args, *product.kwargs.values()]
        x, weight = (part.value for part in given[:2])
        bias = given[2].value if len(given) > 2 and given[2] is not None else None
        if weight not in weights or (bias is not None and bias not in weights):
            return Unavailable("its last product is with something the model computes")
        U = weights[weight]
        made = {ref for step in steps for ref in step.inputs}
        kept = {ref: value for ref, value in self.constants.items() if ref in made}
        loans = {ref: loan for ref, loan in self.loans.items() if ref in made}
        return LinearOutput(
            weight=U,
            bias=U.new_zeros(len(U)) if bias is None else weights[bias],
            _program=replace(self, steps=tuple(steps), constants=kept, loans=loans, end=x),
        )

    def run(self, hidden: Tensor, out: Tensor | None = None) -> Tensor:
        """The output for this hidden state; every value is dropped after its last use."""
        constants = self.weights()
        hidden = hidden.to(device=_entrance(self.steps, constants, hidden), dtype=self.dtype)
        values: dict[int, Tensor] = {**constants, self.start: hidden}
        if any(step.func.__name__.endswith("_") for step in self.steps):
            values[self.start] = hidden.clone()
        last_use = {ref: i for i, step in enumerate(self.steps) for ref in step.inputs}
        computing = _before_casts(self.steps)
        writes = bool(computing) and isinstance(computing[-1].func, LinearProduct)
        final = len(computing) - 1 if writes and out is not None else -1
        for i, step in enumerate(self.steps):
            args, kwargs = mapped((step.args, step.kwargs), Ref, lambda ref: values[ref.value])
            if i == final:
                kwargs["out"] = out
            result = args[0] if step.idle else step.func(*args, **kwargs)
            made = [args[0]] if result is None else [t for _, t in tensors_in(result)]
            values.update(zip(step.outputs, made, strict=True))
            for ref in step.inputs:
                if last_use[ref] == i and ref != self.end:
                    values.pop(ref, None)
        return values[self.end]


@dataclass(frozen=True)
class _Loan:
    """An off-loaded weight: its module, which has a hook of accelerate, and its name there."""

    module: nn.Module
    name: str
    lifted: bool = False

    def fetched(self) -> Tensor:
        """The weight, as the hook brings it before the module runs."""
        hook: Any = self.module._hf_hook
        hook.pre_forward(self.module)
        weight: Tensor = getattr(self.module, self.name).detach()
        hook.post_forward(self.module, None)
        return _wide(weight) if self.lifted else weight


def _before_casts(steps: Sequence[Op]) -> list[Op]:
    """Steps up to the last one that does more than reshape and cast."""
    found = list(steps)
    while found and (found[-1].idle or found[-1].func.__name__ in _CASTS):
        found.pop()
    return found


def _entrance(steps: Sequence[Op], constants: dict[int, Tensor], hidden: Tensor) -> torch.device:
    """Where the first weights are that a hidden state meets."""
    met = (constants[ref].device for step in steps for ref in step.inputs if ref in constants)
    return next(met, hidden.device)


def _wide(tensor: Tensor) -> Tensor:
    return tensor.to(_lifted(tensor.dtype)) if tensor.is_floating_point() else tensor


def _lifted(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def tail_of(trace: Trace, last: ModuleCall, place: int, target: str) -> Tail | Unavailable:
    """The tail from one output of the last block to one output of the model, verified.

    The program is the backward slice of the trace from the target; it may rest on the last hidden
    state and on parameters, on nothing else. Off-loaded ones are read through their hooks.
    """
    start, end = last.outputs[place].value, trace.output_values[target]
    steps = _slice(trace, start, end)
    if isinstance(steps, Unavailable):
        return steps
    constants = {
        ref: trace.parameters[ref] for op in steps for ref in op.inputs if ref in trace.parameters
    }
    if any(constant.is_meta for constant in constants.values()):
        return _OFF_LOADED
    hidden, expected = last.kept.get(place), dict(tensors_in(trace.output)).get(target)
    if hidden is None or expected is None:
        return Unavailable("the last hidden state was gone when the pass ended")
    program = _Program(
        steps=tuple(steps),
        constants=constants,
        start=start,
        end=end,
        own=hidden.dtype,
        loans={
            ref: _Loan(*trace.loans[ref]) for op in steps for ref in op.inputs if ref in trace.loans
        },
    )
    found = _accepted(program, target, hidden, expected)
    program.brought.clear()
    return found


def _slice(trace: Trace, start: int, end: int) -> Sequence[Op] | Unavailable:
    needed, seen, reached = [end], {end}, False
    numbers: set[int] = set()
    attention = {a.op for a in trace.attentions}
    while needed:
        value = needed.pop()
        if value == start:
            reached = True
            continue
        if value in trace.loans and hasattr(trace.loans[value][0], "_hf_hook"):
            continue
        producer = trace.producer[value]
        if producer < 0:
            if value not in trace.parameters:
                if _off_loaded(trace, numbers):
                    return _OFF_LOADED
                return Unavailable(
                    "it depends on the inputs of the pass, not on the last hidden state alone "
                    "(conditioning, or a path around the blocks)"
                )
            continue
        if producer in attention:
            return Unavailable(
                "the output also passes through attention that is not part of the depth"
            )
        numbers.add(producer)
        fresh = [ref for ref in trace.ops[producer].inputs if ref not in seen]
        seen.update(fresh)
        needed.extend(fresh)
    if not reached:
        return Unavailable("the output cannot be followed back to the last block")
    return [trace.ops[n] for n in sorted(numbers)]


def _off_loaded(trace: Trace, numbers: Iterable[int]) -> bool:
    """Whether a module that ran one of these operations has weights of its own off-loaded."""
    modules = (trace.makers[number].module for number in numbers)
    return any(p.is_meta for module in modules for p in module.parameters(recurse=False))


def _accepted(
    program: _Program, target: str, hidden: Tensor, expected: Tensor
) -> Tail | Unavailable:
    tolerance = _TOLERANCE * torch.finfo(expected.dtype).eps * float(expected.abs().max())
    error = _difference(program.run, hidden, expected)
    if not error <= tolerance:
        return Unavailable(
            f"replaying it on the last hidden state misses the model's {target or 'output'} "
            f"by {error:.3g}, more than {tolerance:.3g}"
        )
    positionwise = False
    if hidden.ndim == 3 and expected.shape[:2] == hidden.shape[:2]:
        rows = hidden.flatten(0, 1)[-64:].unsqueeze(1)
        alone = _difference(program.run, rows, expected.flatten(0, 1)[-64:].unsqueeze(1))
        positionwise = alone <= tolerance
    return Tail(
        target=target or "output",
        operations=tuple(step.func.__name__ for step in program.steps if not step.idle),
        positionwise=positionwise,
        width=expected.shape[-1],
        error=error,
        _program=program,
    )


def _difference(run: Callable[[Tensor], Tensor], hidden: Tensor, expected: Tensor) -> float:
    try:
        found = run(hidden)
    except (RuntimeError, IndexError, ValueError, TypeError):
        return float("inf")
    if found.shape != expected.shape:
        return float("inf")
    return float((found.to(torch.float64) - expected.to(torch.float64)).abs().max())
