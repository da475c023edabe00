r"""The same weights with finer steps: every block's residual branch scaled by 1/n and run n times.

A block is $h \mapsto h + r_\ell(h)$. Refined by $n$ it becomes $n$ steps of $h \mapsto h +
r_\ell(h)/n$: explicit Euler for $\dot h = L\,r_\ell(h)$ with step $1/(nL)$. If depth is a
discretised flow, drift and laws settle as $n$ grows; $n = 1$ is the model itself. The branch is
that of the whole block, attention and feed-forward one after the other, so that $n = 1$ is exact
for any order of writes; scaling the two apart has another limit, in which the feed-forward part no
longer sees what attention has just written.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from torch import Tensor, nn

from flowscope.errors import InvalidInputError
from flowscope.records import Unavailable
from flowscope.tap import Chain
from flowscope.tap.trace import arguments_of, mapped, outputs_in

__all__ = ["refined"]

Watch = Callable[[Tensor], None]


@contextmanager
def refined(
    model: nn.Module,
    chain: Chain,
    n: int,
    watch: Watch = lambda hidden: None,
    *,
    blocks: Collection[int] | None = None,
) -> Iterator[nn.Module]:
    """Run blocks of a chain n times with a branch of 1/n, until the ``with`` block is left.

    Parameters
    ----------
    model, chain
        What, and which of its chains (`Tap.anatomy`).
    n
        How many steps replace one block.
    watch
        Told the hidden state before the first step of the chain and after every step, in order.
    blocks
        Which blocks are refined, by index; all when none are named. The others run once.

    Raises
    ------
    InvalidInputError
        When n is not positive, or a block is not its input plus additions: then it has no branch.

    Notes
    -----
    A cache of keys would be written n times: call the model with ``use_cache=False``.
    """
    if n < 1:
        raise InvalidInputError(f"a block is run a positive number of times; got {n}.")
    stream = chain.streams[0]
    for block in chain.blocks:
        writes = block.writes[stream]
        if isinstance(writes, Unavailable):
            raise InvalidInputError(
                f"{block.path} has no residual branch to scale: {writes.reason}."
            )
    modules = {block.path: model.get_submodule(block.path) for block in chain.blocks}
    first = chain.blocks[0].path
    calls = 0

    def replacement(module: nn.Module, place: int) -> Callable[..., Any]:
        original = module.forward

        @wraps(original)  # its signature names the arguments
        def forward(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            given = arguments_of(module, args, kwargs)
            hidden = given[stream]
            if module is modules[first] and calls % len(chain) == 0:
                watch(hidden)
            times = n if blocks is None or calls % len(chain) in blocks else 1
            calls += 1
            for _ in range(times):
                output = original(
                    *mapped(args, Tensor, _swap(given[stream], hidden)),
                    **mapped(kwargs, Tensor, _swap(given[stream], hidden)),
                )
                reached = outputs_in(output)[place]
                hidden = reached if times == 1 else hidden + (reached - hidden) / times
                watch(hidden)
            return mapped(output, Tensor, _swap(reached, hidden))

        return forward

    try:
        for block in chain.blocks:
            module = modules[block.path]
            if "forward" not in module.__dict__:  # a shared block is replaced once
                module.__dict__["forward"] = replacement(module, block.places[stream])
        yield model
    finally:
        for module in modules.values():
            module.__dict__.pop("forward", None)


def _swap(old: Tensor, new: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda tensor: new if tensor is old else tensor
