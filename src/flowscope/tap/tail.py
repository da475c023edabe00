"""The tail: everything a model does after its last block, as a program that can be run again.

``tail(h)`` is the final norm, the transform of a masked-language head, the output matrix with its
bias, the logit scale, the soft-cap: whatever the model itself did between the last block and its
output, replayed operation by operation. Nothing is assumed about names; a tail is accepted only
when replaying it on the last hidden state gives the model's own output again.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.records import Unavailable
from flowscope.tap.trace import ModuleCall, Op, Ref, Trace, mapped, tensors_in

__all__ = ["LinearOutput", "Tail", "tail_of"]

# Replays repeat the same operations; a different batching of a matrix product reorders its sums.
_TOLERANCE = 32.0
# What may follow an output product without changing what it says.
_CASTS = {"to", "float", "contiguous"}
_OFF_LOADED = Unavailable(
    "weights of the tail are off-loaded: they are there only while the model runs"
)


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
            ``[rows, length, d]``; when `positionwise`, any rows and length.
        """
        return self._program.run(hidden)

    @property
    def device(self) -> torch.device:
        """Where its weights are; the CPU when it has none."""
        return self._program.device

    @property
    def weights(self) -> tuple[Tensor, ...]:
        """The parameters and buffers it rests on."""
        return tuple(self._program.constants.values())

    def widened(self) -> "Tail":
        """The same tail in float32, for hidden states in float32.

        Statistics of logits should not carry the rounding of a half-precision output product.
        Half-precision weights are copied, as they are now; float32 weights stay the model's own.
        """
        return replace(self, _program=self._program.widened())

    def rows(self, hidden: Tensor) -> Tensor:
        """The output of each row of ``[..., d]`` on its own: ``[..., width]``."""
        if not self.positionwise:
            raise InvalidInputError(
                "This tail mixes positions (it pools or reshapes them), so rows cannot be read "
                "apart; call the tail on a whole hidden state instead."
            )
        return self._program.run(hidden.reshape(-1, 1, hidden.shape[-1])).reshape(
            *hidden.shape[:-1], self.width
        )

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

    @property
    def device(self) -> torch.device:
        """Of the last of its constants, which is the output's own."""
        found = [constant.device for constant in self.constants.values()]
        return found[-1] if found else torch.device("cpu")

    def widened(self) -> "_Program":
        """The same program in float32: half-precision constants and casts are lifted."""
        steps = [
            replace(
                op,
                args=mapped(op.args, torch.dtype, _lifted),
                kwargs=mapped(op.kwargs, torch.dtype, _lifted),
            )
            for op in self.steps
        ]
        constants = {
            ref: c.to(_lifted(c.dtype)) if c.is_floating_point() else c
            for ref, c in self.constants.items()
        }
        return replace(self, steps=tuple(steps), constants=constants)

    def split(self) -> LinearOutput | Unavailable:
        """The program up to its last product, and that product; nothing but casts may follow."""
        steps = list(self.steps)
        while steps and (steps[-1].idle or steps[-1].func.__name__ in _CASTS):
            steps.pop()
        if not steps or steps[-1].func is not torch.nn.functional.linear:
            return Unavailable("its last operation is not a product with a weight")
        product = steps.pop()
        given = [*product.args, *product.kwargs.values()]
        x, weight = (part.value for part in given[:2])
        bias = given[2].value if len(given) > 2 and given[2] is not None else None
        if weight not in self.constants or (bias is not None and bias not in self.constants):
            return Unavailable("its last product is with something the model computes")
        U = self.constants[weight]
        made = {ref for step in steps for ref in step.inputs}
        kept = {ref: value for ref, value in self.constants.items() if ref in made}
        return LinearOutput(
            weight=U,
            bias=U.new_zeros(len(U)) if bias is None else self.constants[bias],
            _program=replace(self, steps=tuple(steps), constants=kept, end=x),
        )

    def run(self, hidden: Tensor) -> Tensor:
        """The output for this hidden state; every value is dropped after its last use."""
        values: dict[int, Tensor] = {**self.constants, self.start: hidden}
        if any(step.func.__name__.endswith("_") for step in self.steps):
            values[self.start] = hidden.clone()
        last_use = {ref: i for i, step in enumerate(self.steps) for ref in step.inputs}
        for i, step in enumerate(self.steps):
            args, kwargs = mapped((step.args, step.kwargs), Ref, lambda ref: values[ref.value])
            result = args[0] if step.idle else step.func(*args, **kwargs)
            made = [args[0]] if result is None else [t for _, t in tensors_in(result)]
            values.update(zip(step.outputs, made, strict=True))
            for ref in step.inputs:
                if last_use[ref] == i and ref != self.end:
                    values.pop(ref, None)
        return values[self.end]


def _lifted(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def tail_of(trace: Trace, last: ModuleCall, place: int, target: str) -> Tail | Unavailable:
    """The tail from one output of the last block to one output of the model, verified.

    The program is the backward slice of the trace from the target; it may rest on the last hidden
    state and on parameters, on nothing else. Only off-loaded weights of the tail itself refuse it.
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
    program = _Program(steps=tuple(steps), constants=constants, start=start, end=end)
    hidden, expected = last.kept.get(place), dict(tensors_in(trace.output)).get(target)
    if hidden is None or expected is None:
        return Unavailable("the last hidden state was gone when the pass ended")
    return _accepted(program, target, hidden, expected)


def _slice(trace: Trace, start: int, end: int) -> Sequence[Op] | Unavailable:
    needed, seen, reached = [end], {end}, False
    numbers: set[int] = set()
    attention = {a.op for a in trace.attentions}
    while needed:
        value = needed.pop()
        if value == start:
            reached = True
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
