r"""One-step pairs of a path: where it stood, when, and how fast it left.

.. math:: v^\ell = \frac{y^{\ell+1} - y^\ell}{t_{\ell+1} - t_\ell}
          \quad\text{at}\quad (t_\ell, y^\ell),

y being reduced coordinates of a token at layer ℓ. This is the D_L of source 000 Assumption 5.1(3).
A drift fitted to v reproduces the layers when it is stepped by Euler from layer to layer; the exact
flow of the same drift is off by ½Δt·(∂_t + v·∇)v per unit of time, because a difference over a
whole layer is not a derivative. For ẏ = Ay the fit returns (e^{AΔt} − I)/Δt and not A.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float, Int64
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.simplex.probability import as_reals, refuse

__all__ = ["DriftSample", "check_moving", "drift_sample"]


@dataclass(frozen=True, eq=False, kw_only=True)
class DriftSample:
    """Pairs (state, velocity) with their times and prompts.

    Attributes
    ----------
    states : y, one row per pair.
    times : t of each pair.
    velocities : v, the step that follows y divided by its duration.
    groups : prompt of each pair; pairs of one prompt are never split between folds.
    context : further features of each pair, or None.
    context_names : one name per column of the context.

    Raises
    ------
    InvalidInputError
        If lengths differ, there is no pair, or a number is not finite.
    """

    states: Float[Tensor, "N r"]
    times: Float[Tensor, "N"]
    velocities: Float[Tensor, "N r"]
    groups: Int64[Tensor, "N"]
    context: Float[Tensor, "N c"] | None = None
    context_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.states.ndim != 2 or self.states.numel() == 0:
            raise InvalidInputError(
                "states must have shape [N, r] with at least one pair and one coordinate; found "
                f"{tuple(self.states.shape)}. Use drift_sample to make pairs from paths."
            )
        N = len(self.states)
        context = self.states.new_zeros(N, 0) if self.context is None else self.context
        found = (self.times, self.velocities, self.groups, context)
        shapes = ((N,), tuple(self.states.shape), (N,), (N, len(self.context_names)))
        names = ("times", "velocities", "groups", "context")
        for name, x, shape in zip(names, found, shapes, strict=True):
            if tuple(x.shape) != shape:
                raise InvalidInputError(
                    f"{name} must have shape {shape} beside states of shape "
                    f"{tuple(self.states.shape)}; found {tuple(x.shape)}. Give one row per pair "
                    "and one name per context column."
                )
        for name, x in [("states", self.states), *zip(names, found, strict=True)]:
            refuse(~x.isfinite(), x, f"{name} must be finite", "Leave out the token it is from.")

    def __len__(self) -> int:
        return len(self.states)

    @property
    def width(self) -> int:
        """r, the number of coordinates."""
        return self.states.shape[1]

    def at(self, rows: Tensor) -> "DriftSample":
        """The pairs of some rows, by mask or by index."""
        return DriftSample(
            states=self.states[rows],
            times=self.times[rows],
            velocities=self.velocities[rows],
            groups=self.groups[rows],
            context=None if self.context is None else self.context[rows],
            context_names=self.context_names,
        )


def drift_sample(
    paths: Float[Tensor, "n layers r"],
    times: Float[Tensor, "layers"],
    groups: Int64[Tensor, "n"],
    context: Float[Tensor, "n *steps c"] | None = None,
    context_names: Sequence[str] = (),
) -> DriftSample:
    r"""One-step pairs of paths that share their times.

    .. math:: v_i^\ell = \frac{y_i^{\ell+1} - y_i^\ell}{t_{\ell+1} - t_\ell}, \qquad
              \ell = 0, \dots, \mathrm{layers} - 2

    Parameters
    ----------
    paths : y, one path per token.
    times : t, strictly increasing, one per layer.
    groups : prompt of each token.
    context : further features, [n, c] for every step of a token alike or [n, layers − 1, c] with
        one row per step (the velocity of the step before, for one).
    context_names : one name per column; c0, c1, … where none are given.

    Returns
    -------
    The pairs, token after token, layers in order within a token.

    Raises
    ------
    InvalidInputError
        If shapes do not match, there are fewer than two layers, times do not increase, or a number
        is not finite.

    Notes
    -----
    O(n·layers·r), in the dtype of the paths. Source 000 Assumption 5.1(3). A context that is
    constant along a token can be carried along an ODE as it is
    (:func:`flowscope.flows.drift.carried`); one that changes from step to step cannot, and is then
    frozen at its starting value.

    Examples
    --------
    >>> import torch
    >>> paths = torch.tensor([[[0.0], [1.0], [3.0]]])
    >>> sample = drift_sample(paths, torch.tensor([0.0, 0.5, 1.0]), torch.tensor([7]))
    >>> sample.velocities.flatten(), sample.times
    (tensor([2., 4.]), tensor([0.0000, 0.5000]))
    """
    y = as_reals(paths, "paths")
    if y.ndim != 3 or y.shape[1] < 2:
        raise InvalidInputError(
            "paths must have shape [n, layers, r] with at least two layers; found "
            f"{tuple(y.shape)}. A single layer has no step."
        )
    n, layers, r = y.shape
    t = as_reals(times, "times", y.device)
    if tuple(t.shape) != (layers,) or tuple(groups.shape) != (n,):
        raise InvalidInputError(
            f"paths of shape {tuple(y.shape)} need times [{layers}] and groups [{n}]; found "
            f"{tuple(t.shape)} and {tuple(groups.shape)}."
        )
    dt = t.diff()
    refuse(~(dt > 0), dt, "times must increase strictly", "Sort the layers, drop repeated ones.")
    extra = None if context is None else _per_step(as_reals(context, "context").to(y), n, layers)
    width = 0 if extra is None else extra.shape[1]
    names = tuple(context_names) or tuple(f"c{i}" for i in range(width))
    return DriftSample(
        states=y[:, :-1].reshape(-1, r),
        times=t[:-1].repeat(n),
        velocities=(y.diff(dim=1) / dt.to(y)[:, None]).reshape(-1, r),
        groups=groups.repeat_interleave(layers - 1),
        context=extra,
        context_names=names,
    )


def check_moving(sample: DriftSample) -> None:
    """Raise when nothing moves or nothing differs: there is no drift to fit then."""
    if not bool(sample.velocities.any()):
        raise InvalidInputError(
            f"velocities must not all be zero; found {len(sample)} pairs at rest. "
            "Persistence is exact there: use persistence()."
        )
    if len(sample) > 1 and bool((sample.states == sample.states[0]).all()):
        raise InvalidInputError(
            f"states must differ; all {len(sample)} pairs stand at one point, so every coordinate "
            "is constant. Check the projection, or use mean_drift."
        )


def _per_step(context: Tensor, n: int, layers: int) -> Float[Tensor, "N c"]:
    if context.ndim == 2 and len(context) == n:
        return context.repeat_interleave(layers - 1, 0)
    if context.ndim == 3 and tuple(context.shape[:2]) == (n, layers - 1):
        return context.flatten(0, 1)
    raise InvalidInputError(
        f"context must have shape [{n}, c] (one row per token) or [{n}, {layers - 1}, c] (one per "
        f"step); found {tuple(context.shape)}."
    )
