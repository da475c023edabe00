r"""A small network as a drift, stopped early on prompts it does not see.

.. math:: \hat b(t, y) = s\,W_3 \tanh\!\big(W_2 \tanh(W_1 \phi(t, y) + b_1) + b_2\big) + s\,b_3 ,

φ the standardised features and s one scale of all velocities. tanh is smooth, so a solver of high
order keeps its order, and bounded, so the velocity stays bounded where a path leaves the training
states. With every ‖W‖₂ ≤ c the map φ ↦ b/s is Lipschitz with constant c³.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.drift.features import FeatureMap, FeatureProduct, feature_map
from flowscope.flows.drift.folds import group_folds
from flowscope.flows.drift.samples import DriftSample, check_moving
from flowscope.flows.recording import Recording
from flowscope.simplex.probability import as_reals

__all__ = ["Perceptron", "Training", "perceptron_drift"]

# Small samples take this many steps per epoch.
_STEPS = 40


@dataclass(frozen=True, kw_only=True)
class Training:
    """How the network is trained.

    Attributes
    ----------
    epochs : passes over the training pairs at most.
    patience : passes without a better held-out error before it stops.
    batch : pairs per step at most; fewer where an epoch would have fewer than 40 steps.
    rate, decay : of AdamW.
    held_out : share of prompts that only decide when to stop.
    """

    epochs: int = 60
    patience: int = 6
    batch: int = 512
    rate: float = 3e-3
    decay: float = 1e-3
    held_out: float = 0.2


@dataclass(frozen=True, eq=False, kw_only=True)
class Perceptron:
    """A drift of two hidden layers; see :func:`perceptron_drift`.

    Attributes
    ----------
    features : φ; layers : (W, b) of each layer, W of shape [in, out]; scale : s.
    errors : held-out mean of ‖v − b‖² after each epoch; the weights are those of the smallest.
    """

    features: FeatureMap
    layers: tuple[tuple[Tensor, Tensor], ...]
    scale: float
    errors: tuple[float, ...]
    name: str = "perceptron"

    def __call__(
        self,
        t: Float[Tensor, "*N"] | float,
        y: Float[Tensor, "*N r"],
        context: Float[Tensor, "*N c"] | None = None,
    ) -> Float[Tensor, "*N r"]:
        """Velocity at y and t."""
        states = as_reals(y, "y")
        first, rest = self._wide
        x = first(t, states, context).tanh()
        found = _forward(x.reshape(-1, x.shape[-1]), rest).reshape(*x.shape[:-1], -1)
        return (self.scale * found).to(states.dtype)

    @cached_property
    def _wide(self) -> tuple[FeatureProduct, list[tuple[Tensor, Tensor]]]:
        """The first layer on top of the features, and the others, in float64."""
        (W, b), *rest = [(W.double(), b.double()) for W, b in self.layers]
        W = W.clone()
        W[0] += b  # the first feature is one
        return self.features.product(W), rest


def perceptron_drift(
    sample: DriftSample,
    *,
    generator: torch.Generator,
    width: int = 128,
    rich: bool = False,
    spectral: float | None = None,
    training: Training | None = None,
) -> Perceptron:
    r"""Drift by a network with two hidden layers, early stopping on held-out prompts.

    .. math:: \min_\theta \operatorname{mean}_i \big\|v_i/s - f_\theta(\phi(t_i, y_i))\big\|^2,
              \qquad s^2 = \tfrac1r \operatorname{mean}_i \|v_i\|^2

    Parameters
    ----------
    sample : pairs (y, v) with times t and prompts.
    generator : draws weights, batches and the held-out prompts; the global one is not touched.
    width : of both hidden layers.
    rich : as in :func:`flowscope.flows.drift.feature_map`.
    spectral : c, a bound on ‖W‖₂ of every layer, or None for no bound.
    training : steps, rates and patience; see :class:`Training`.

    Raises
    ------
    InvalidInputError
        If there are fewer than two prompts, the bound is not positive, or nothing moves.

    Notes
    -----
    AdamW in float32, O(epochs·N·width·(F + width + r)). The bound scales a matrix down to c by one
    power iteration per step and, at the end, by its exact norm. Source 000 O.1 (small MLP head,
    spectral normalisation). The held-out prompts have chosen the epoch, so their error is
    optimistic; the honest one is that of :func:`flowscope.flows.drift.select_drift`.

    Examples
    --------
    >>> from flowscope.flows.drift import drift_sample
    >>> start = torch.linspace(-1, 1, 100)[:, None, None]
    >>> sample = drift_sample(
    ...     torch.cat([start, 0.0 * start], 1), torch.tensor([0.0, 1.0]), torch.arange(100)
    ... )
    >>> found = perceptron_drift(sample, width=16, generator=torch.Generator().manual_seed(0))
    >>> abs(found(0.0, torch.tensor([[0.5]])).item() + 0.5) < 0.05
    True
    """
    if spectral is not None and not 0 < spectral < math.inf:
        raise InvalidInputError(f"spectral must be a positive number or None; found {spectral}.")
    check_moving(sample)
    options = training or Training()
    held = _held_out(sample, options.held_out, generator)
    trained = sample.at(~held)
    phi = feature_map(trained, rich=rich)
    scale = trained.velocities.double().square().mean().sqrt().item()
    if scale == 0:
        raise InvalidInputError(
            "Velocities of the training prompts must not all be zero; only held-out prompts move. "
            "Give more prompts."
        )
    weights = _initial(len(phi), width, sample.width, generator, sample.states.device)
    with torch.enable_grad():
        layers, errors = _trained(
            weights, _pairs(phi, trained, scale), _pairs(phi, sample.at(held), scale),
            options, spectral, generator,
        )  # fmt: skip
    missed = tuple(e * scale**2 * sample.width for e in errors)
    return Perceptron(features=phi, layers=layers, scale=scale, errors=missed)


def _forward(phi: Tensor, layers: list[tuple[Tensor, Tensor]]) -> Tensor:
    x = phi
    for W, b in layers[:-1]:
        x = torch.addmm(b, x.reshape(-1, x.shape[-1]), W).tanh().reshape(*x.shape[:-1], -1)
    W, b = layers[-1]
    return x @ W + b


def _held_out(sample: DriftSample, share: float, generator: torch.Generator) -> Tensor:
    G = len(torch.unique(sample.groups))
    if not 0 < share <= 0.5 or G < 2:
        raise InvalidInputError(
            f"Early stopping needs two prompts and a held-out share in (0, 0.5]; found {G} prompts "
            f"and a share of {share}."
        )
    return group_folds(sample.groups, min(G, max(2, round(1 / share))), generator) == 0


def _pairs(phi: FeatureMap, sample: DriftSample, scale: float) -> tuple[Tensor, Tensor]:
    columns = phi(sample.times, sample.states, sample.context).float()
    return columns, (sample.velocities / scale).float()


def _initial(
    features: int, width: int, r: int, generator: torch.Generator, device: torch.device
) -> list[Tensor]:
    """W, b of three layers, alternating: uniform with variance 1/fan-in, the last one smaller."""
    found = []
    for fan_in, fan_out, gain in [(features, width, 1.0), (width, width, 1.0), (width, r, 0.1)]:
        W = (2 * torch.rand(fan_in, fan_out, generator=generator) - 1) * math.sqrt(3 / fan_in)
        found += [(gain * W).to(device), torch.zeros(fan_out, device=device)]
    return [x.requires_grad_() for x in found]


def _trained(
    weights: list[Tensor],
    seen: tuple[Tensor, Tensor],
    held: tuple[Tensor, Tensor],
    options: Training,
    spectral: float | None,
    generator: torch.Generator,
) -> tuple[tuple[tuple[Tensor, Tensor], ...], list[float]]:
    """Layers of the epoch with the smallest held-out error, and the error of each epoch."""
    best, errors = _layers(weights, spectral), list[float]()
    batch = min(options.batch, max(32, len(seen[0]) // _STEPS))
    step = _TrainingStep(weights, seen, batch, options, spectral)
    for _ in range(options.epochs):
        order = torch.randperm(len(seen[0]), generator=generator).to(seen[0].device)
        for rows in torch.split(order, batch):
            step(rows)
        layers = _layers(weights, spectral)
        errors.append((_forward(held[0], layers) - held[1]).square().mean().item())
        if errors[-1] <= min(errors):
            best = layers
        elif len(errors) - errors.index(min(errors)) > options.patience:
            break
    return tuple(best), errors


class _TrainingStep:
    """Steps of AdamW on batches of one size, recorded on a GPU; smaller batches are not."""

    def __init__(
        self,
        weights: list[Tensor],
        seen: tuple[Tensor, Tensor],
        batch: int,
        options: Training,
        spectral: float | None,
    ) -> None:
        self._weights, self._seen, self._spectral = weights, seen, spectral
        self._directions = [torch.ones_like(W[0]) for W in weights[::2]]
        on_gpu = weights[0].is_cuda
        self._optimiser = torch.optim.AdamW(
            weights,
            lr=options.rate,
            weight_decay=options.decay,
            fused=True if on_gpu else None,  # else a step is some forty small kernels
            capturable=on_gpu,
        )
        device = seen[0].device
        self._rows = torch.zeros(min(batch, len(seen[0])), dtype=torch.int64, device=device)
        self._recording = Recording(lambda: self._on(self._rows), device)

    def __call__(self, rows: Tensor) -> None:
        if len(rows) != len(self._rows):
            self._on(rows)
            return
        self._rows.copy_(rows)
        self._recording()

    def _on(self, rows: Tensor) -> None:
        layers = _bounded(self._weights, self._directions, self._spectral)
        loss = (_forward(self._seen[0][rows], layers) - self._seen[1][rows]).square().mean()
        slopes = torch.autograd.grad(loss, self._weights)
        for weight, slope in zip(self._weights, slopes, strict=True):
            weight.grad = slope
        self._optimiser.step()


def _bounded(
    weights: list[Tensor], directions: list[Tensor], bound: float | None
) -> list[tuple[Tensor, Tensor]]:
    """Layers with ‖W‖₂ brought down to the bound, the norm by one power iteration."""
    if bound is None:
        return list(zip(weights[::2], weights[1::2], strict=True))
    layers = []
    for place, (W, b) in enumerate(zip(weights[::2], weights[1::2], strict=True)):
        with torch.no_grad():
            left = torch.nn.functional.normalize(W @ directions[place], dim=0)
            directions[place].copy_(torch.nn.functional.normalize(left @ W, dim=0))
        norm = left @ W @ directions[place].clone()  # autograd keeps it; the next step writes it
        layers.append((W / (norm / bound).clamp_min(1.0), b))
    return layers


def _layers(weights: list[Tensor], bound: float | None) -> list[tuple[Tensor, Tensor]]:
    """Copies of the layers that no longer learn, with the bound exact."""
    found = []
    for W, b in zip(weights[::2], weights[1::2], strict=True):
        W, b = W.detach().clone(), b.detach().clone()
        if bound is not None:
            W /= (torch.linalg.matrix_norm(W, 2) / bound).clamp_min(1.0)
        found.append((W, b))
    return found
