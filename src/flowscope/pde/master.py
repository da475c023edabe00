r"""The master equation of source 001, trainable, each of its terms callable apart.

$$
\partial_t u = \mathcal A(u) + \mathcal R(u) + \mathcal D(u) + \mathcal S(u), \qquad
\mathcal A + \mathcal R = \mathrm{Attn}(u) + \mathrm{FFN}(u) - c\,u .
$$

The source subtracts $u$ in both operators ($c = 2$) and calls that "without residual connections";
its Euler step $(1-2\Delta t)u + \Delta t(\mathrm{Attn}+\mathrm{FFN})$ is a residual step with a
leak (E59). The leak is a setting here: 0 is a transformer whose two branches run side by side.
Its stabiliser, eq 9, extinguishes the field (E60); the relaxing one is drawn to mean 0, spread 1.
"""

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from flowscope.errors import InvalidInputError
from flowscope.pde.branches import AttentionBranch, FeedForwardBranch

__all__ = ["MasterEquation"]

Field = Float[Tensor, "batch N d"]


class MasterEquation(nn.Module):
    """Explicit Euler steps of ∂u/∂t = A + R + D + S.

    Parameters
    ----------
    width, heads
        Features of the field, and heads of attention, which must divide them.
    steps
        Number of Euler steps: blocks.
    leak
        c: how often u is subtracted. 2 is the source's, once for attention and once for
        feed-forward; 1 is split between them; 0 is a transformer.
    dt
        Length of a step; 1/steps by default.
    norm
        ``"layer"`` puts LayerNorm in front of attention and feed-forward, ``"none"`` nothing.
    stabiliser
        ``"published"`` −γ(u − μ)/√(σ² + ε), ``"relaxing"`` −γ(u − (u − μ)/√(σ² + ε)), statistics
        over the tokens of each feature; or ``"none"``.
    gamma, epsilon
        γ and ε of the stabiliser.
    diffusion
        Coefficient of the discrete Laplacian over positions, without flux at the ends.
    shared
        Whether all steps use the same weights.
    causal
        Whether a token sees only earlier ones.
    expansion
        Width of the feed-forward part in units of ``width``.

    Raises
    ------
    InvalidInputError
        For a setting out of its range; the message names it.

    Examples
    --------
    >>> model = MasterEquation(width=8, heads=2, steps=6, leak=2)
    >>> _ = [weight.data.zero_() for name, weight in model.named_parameters() if "output" in name]
    >>> u = torch.ones(1, 3, 8)
    >>> round(model(u)[0, 0, 0].item(), 6)  # (2/3)⁶
    0.087791
    """

    def __init__(
        self,
        *,
        width: int,
        heads: int,
        steps: int,
        leak: Literal[0, 1, 2] = 0,
        dt: float | None = None,
        norm: Literal["layer", "none"] = "layer",
        stabiliser: Literal["published", "relaxing", "none"] = "none",
        gamma: float = 1.0,
        epsilon: float = 1e-5,
        diffusion: float = 0.0,
        shared: bool = False,
        causal: bool = False,
        expansion: int = 4,
    ) -> None:
        super().__init__()
        _check_sizes(width, heads, steps, expansion)
        _check_choices(leak, norm, stabiliser)
        self.dt = 1 / steps if dt is None else dt
        _check_numbers(dt=self.dt, gamma=gamma, epsilon=epsilon, diffusion=diffusion)
        self.steps, self.leak, self.shared = steps, leak, shared
        self._stabiliser, self._gamma, self._epsilon = stabiliser, gamma, epsilon
        self._diffusivity = diffusion
        count = 1 if shared else steps
        self.attentions = nn.ModuleList(
            AttentionBranch(width, heads, norm=norm, causal=causal) for _ in range(count)
        )
        self.perceptrons = nn.ModuleList(
            FeedForwardBranch(width, expansion, norm=norm) for _ in range(count)
        )

    def forward(self, u: Field) -> Field:
        """The field after all steps."""
        for index in range(self.steps):
            u = self.step(u, index)
        return u

    def path(self, u: Field) -> Float[Tensor, "steps+1 batch N d"]:
        """The field before the first step and after every one."""
        states = [u]
        for index in range(self.steps):
            states.append(self.step(states[-1], index))
        return torch.stack(states)

    @property
    def depth(self) -> int:
        """Number of steps."""
        return self.steps

    def step(self, u: Field, index: int) -> Field:
        """One Euler step."""
        rate = self.attention(u, index) + self.feed_forward(u, index)
        if self._diffusivity:
            rate = rate + self.diffusion(u)
        if self._stabiliser != "none":
            rate = rate + self.stabiliser(u)
        return u + self.dt * rate

    def attention(self, u: Field, index: int) -> Field:
        """A: attention between tokens less half of the leak."""
        written: Tensor = self.attentions[0 if self.shared else index](u)
        return written - self.leak / 2 * u

    def feed_forward(self, u: Field, index: int) -> Field:
        """R: the pointwise network less half of the leak."""
        written: Tensor = self.perceptrons[0 if self.shared else index](u)
        return written - self.leak / 2 * u

    def diffusion(self, u: Field) -> Field:
        """D: the discrete Laplacian over positions times its coefficient."""
        steps = torch.diff(u, dim=-2)
        nothing = torch.zeros_like(u[..., :1, :])
        flux = torch.cat([nothing, steps, nothing], dim=-2)
        return self._diffusivity * torch.diff(flux, dim=-2)

    def stabiliser(self, u: Field) -> Field:
        """S: as published, relaxing, or nothing."""
        if self._stabiliser == "none":
            return torch.zeros_like(u)
        apart = u - u.mean(-2, keepdim=True)
        unit = apart / (apart.square().mean(-2, keepdim=True) + self._epsilon).sqrt()
        return -self._gamma * (unit if self._stabiliser == "published" else u - unit)


def _check_sizes(width: int, heads: int, steps: int, expansion: int) -> None:
    for name, value in (("width", width), ("steps", steps), ("expansion", expansion)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InvalidInputError(f"{name} must be a positive whole number; got {value!r}.")
    if isinstance(heads, bool) or not isinstance(heads, int) or heads < 1 or width % heads:
        raise InvalidInputError(f"heads must divide the width {width}; got {heads!r}.")


def _check_choices(leak: int, norm: str, stabiliser: str) -> None:
    allowed = {
        "leak": (leak, (0, 1, 2)),
        "norm": (norm, ("layer", "none")),
        "stabiliser": (stabiliser, ("published", "relaxing", "none")),
    }
    for name, (value, choices) in allowed.items():
        if value not in choices:
            raise InvalidInputError(
                f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}."
            )


def _check_numbers(**numbers: float) -> None:
    for name, value in numbers.items():
        if not (math.isfinite(value) and (value > 0 or (name != "dt" and value == 0))):
            raise InvalidInputError(f"{name} must be finite and positive; got {value!r}.")
