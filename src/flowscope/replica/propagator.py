r"""The propagator of a replica difference through one block, by exact derivatives, in channels.

A block is given by what stands before its attention and what stands after,

$$
(Q, K, V) = \mathrm{project}(H), \qquad H^+ = \mathrm{finish}(H, o), \qquad
o = \operatorname{softmax}(\beta QK^\top)\,V ,
$$

with gates, output projection, residual additions and the MLP inside *finish*. Two replicas
$H_0 \pm h/\sqrt2$ are coupled at $o$ (`flowscope.replica.gate`); their difference becomes
$K_g h + O(h^3)$ with

$$
K_g h = \underbrace{\partial_H\mathrm{finish}[h]}_{\text{direct}} + \partial_o\mathrm{finish}\bigl[
\underbrace{\rho\,A_0\,\delta V}_{\text{routing}} +
\underbrace{D\sigma[\beta\,\delta Q K_0^\top]V_0}_{\text{query}} +
\underbrace{\rho\,D\sigma[\beta\,Q_0\,\delta K^\top]V_0}_{\text{key}}\bigr] ,
$$

$\delta Q, \delta K, \delta V$ the derivatives of *project* along $h$, $A_0$ the kernel of the
symmetric state, $\rho = (1-g)/(1+g)$ and $D\sigma[\delta S] = A_0\odot(\delta S -
\langle A_0,\delta S\rangle)$. There is no factor 2 (E80), and the query channel does not depend on
$g$ (E81). The direct channel is $I + J_{\rm MLP}$ for a block of two residual branches. Nothing is
dropped: the product of MLP and attention that 004 eq 33 leaves out is in the last three channels.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.func import jvp

from flowscope.errors import InvalidInputError
from flowscope.replica.gate import routing_factor, row_softmax
from flowscope.replica.routing import kernel_derivative

__all__ = ["Channels", "Propagator", "ReplicaBlock"]

State = Float[Tensor, "*batch N width"]
Heads = Float[Tensor, "*batch heads N d"]
Directions = Float[Tensor, "*modes N width"]


@dataclass(frozen=True, eq=False)
class ReplicaBlock:
    """A transformer block as two functions, cut open at its attention.

    Attributes
    ----------
    project
        State to queries, keys and values per head.
    finish
        State and attention output per head to the next state.
    scale
        β, the factor on the raw scores.
    mask
        Boolean (True: may attend) or additive, broadcast against the logits; None for none.
    """

    project: Callable[[State], tuple[Heads, Heads, Heads]]
    finish: Callable[[State, Heads], State]
    scale: float
    mask: Float[Tensor, "..."] | Bool[Tensor, "..."] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Channels:
    """What a block does to a difference, by the way it took.

    Attributes
    ----------
    direct
        Past the attention: the identity and the MLP.
    routing
        Through the values, with the attention pattern frozen.
    query, key
        Through the pattern, as queries or keys change.
    """

    direct: Directions
    routing: Directions
    query: Directions
    key: Directions

    @property
    def total(self) -> Directions:
        """The sum, which is K_g h."""
        return self.direct + self.routing + self.query + self.key


class Propagator:
    r"""The operator $K_g$ of one block at one symmetric state, for any direction and coupling.

    Parameters
    ----------
    block
        The block, as functions that torch can differentiate forward.
    H0
        State of both replicas; leading axes are a batch that the block keeps apart.
    chunk
        Directions taken at once; all by default. Fewer hold less in memory.

    Raises
    ------
    InvalidInputError
        If the state is not finite, or the block does not return a state of the same shape.

    Notes
    -----
    Queries, keys, values, kernel and output at ``H0`` are kept. A direction costs one forward
    derivative of *project* and four of *finish* (`apply`: one of each). Precision is that of the
    state. Gradients are not recorded.

    Examples
    --------
    >>> swap = lambda H: 3 * (H[..., None, :, :],)
    >>> block = ReplicaBlock(swap, lambda H, o: H + o[..., 0, :, :], 0.0)
    >>> K = Propagator(block, torch.zeros(2, 1))
    >>> K.channels(torch.tensor([[1.0], [0.0]]), 0.0).routing.flatten()
    tensor([0.5000, 0.5000])
    >>> K.apply(torch.tensor([[1.0], [0.0]]), 1.0).flatten()
    tensor([1., 0.])
    """

    def __init__(self, block: ReplicaBlock, H0: State, *, chunk: int | None = None) -> None:
        if not bool(torch.isfinite(H0).all()):
            raise InvalidInputError("the symmetric state must be finite; it has NaN or ∞ in it.")
        self.block, self.H0 = block, H0.detach()
        self._chunk = chunk
        with torch.no_grad():
            self._q, self._k, self._v = block.project(self.H0)
            self._kernel = row_softmax(self._q, self._k, block.scale, block.mask)
            self._output = self._kernel @ self._v
            self._next = block.finish(self.H0, self._output)
        if self._next.shape != self.H0.shape:
            raise InvalidInputError(
                f"a block must return a state of the shape it was given, {tuple(H0.shape)}; this "
                f"one returned {tuple(self._next.shape)}."
            )

    @property
    def kernel(self) -> Float[Tensor, "*batch heads N N"]:
        """A₀, the attention of the symmetric state."""
        return self._kernel

    @property
    def values(self) -> Heads:
        """V₀, its values."""
        return self._v

    @property
    def next_state(self) -> State:
        """What the block makes of the symmetric state; the same for every coupling."""
        return self._next

    def channels(self, h: Directions, g: float) -> Channels:
        """K_g h by channels.

        Parameters
        ----------
        h
            Directions of the shape of the state, with any leading axes before it.
        g
            Coupling strength in [0, 1].
        """
        rho = routing_factor(g)

        def one(direction: Tensor) -> tuple[Tensor, ...]:
            routing, query, key = self._outputs(direction)
            direct = jvp(lambda H: self.block.finish(H, self._output), (self.H0,), (direction,))
            # The gate comes last, so that a closed channel is exactly zero.
            return (
                direct[1],
                rho * self._after(routing),
                self._after(query),
                rho * self._after(key),
            )

        direct, routing, query, key = self._over(one, h)
        return Channels(direct=direct, routing=routing, query=query, key=key)

    def apply(self, h: Directions, g: float) -> Directions:
        """K_g h alone: one derivative of each half instead of five.

        Parameters
        ----------
        h, g
            As for `channels`.
        """
        rho = routing_factor(g)

        def one(direction: Tensor) -> tuple[Tensor, ...]:
            routing, query, key = self._outputs(direction)
            moved = rho * (routing + key) + query
            start = (self.H0, self._output)
            return (jvp(self.block.finish, start, (direction, moved))[1],)

        return self._over(one, h)[0]

    def _outputs(self, h: State) -> tuple[Heads, Heads, Heads]:
        """Changes of the attention output before any gate: routing, query, key."""
        dq, dk, dv = jvp(self.block.project, (self.H0,), (h,))[1]
        A, beta = self._kernel, self.block.scale
        query = kernel_derivative(A, beta * (dq @ self._k.mT)) @ self._v
        key = kernel_derivative(A, beta * (self._q @ dk.mT)) @ self._v
        return A @ dv, query, key

    def _after(self, moved: Heads) -> State:
        """Derivative of what follows the attention, along a change of its output."""
        after: Tensor = jvp(lambda o: self.block.finish(self.H0, o), (self._output,), (moved,))[1]
        return after

    def _over(self, one: Callable[[Tensor], tuple[Tensor, ...]], h: Tensor) -> tuple[Tensor, ...]:
        """A function of one direction, over every leading axis of several."""
        shape = self.H0.shape
        if h.shape[h.ndim - len(shape) :] != shape:
            raise InvalidInputError(
                f"a direction must have the shape of the state, {tuple(shape)}, after any leading "
                f"axes; got {tuple(h.shape)}."
            )
        with torch.no_grad():
            if h.ndim == len(shape):
                return one(h.to(self.H0))
            flat = h.to(self.H0).reshape(-1, *shape)
            parts = torch.vmap(one, chunk_size=self._chunk)(flat)
        return tuple(part.reshape(h.shape) for part in parts)
