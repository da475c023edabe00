r"""Linear response of every block of a live denoiser to a difference between its replicas.

At symmetric states $H_0$ of a reverse step the difference $h$ of two replicas
$H_0 \pm h/\sqrt2$ leaves a block as $K_g h$ (`flowscope.replica.propagator`). Along unit modes
$r_k$ of the block's input at the first reverse step the gains of its channels are measured at
$g = 0$; the gates give them for every other coupling,

$$
\eta_k(g) = d_k + q_k + \rho(g)\,(\chi_k + \zeta_k), \qquad \rho(g) = \frac{1-g}{1+g},
$$

$d_k$ the direct, $\chi_k$ the routing, $q_k$ and $\zeta_k$ the query and key channel (E81).
Identical replicas do not feel their coupling, so that one uncoupled trajectory has the symmetric
states of every $g$. What lies beyond the linear part is read along the first mode, at finite
amplitude and without coupling:

$$
f(a) = \tfrac1{\sqrt2}\,r_1^\top\bigl(F(H_0 + \tfrac a{\sqrt2} r_1)
- F(H_0 - \tfrac a{\sqrt2} r_1)\bigr) .
$$
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from flowscope.errors import InvalidInputError, UnsupportedModelError
from flowscope.instruments.sync.config import SyncConfig
from flowscope.instruments.sync.pair_sampling import pair_sampler
from flowscope.instruments.sync.propagation.tables import (
    StepResponse,
    assumption_table,
    gain_table,
    leading_projections,
    mode_commitment_table,
    no_separation,
    speciation_table,
)
from flowscope.levers import couple
from flowscope.models.diffusion.denoiser import Denoiser
from flowscope.probes import Arrays, PlainBatch, TapProbe, tap_pass
from flowscope.probes.block_callable import live_block
from flowscope.records import Shards, Unavailable
from flowscope.replica import (
    Propagator,
    leading_eigenvalue,
    mixture_moments,
    modal_gains,
    modal_product,
    stacked_gram,
)
from flowscope.replica.gains import inner_product
from flowscope.tap import BlockPass
from flowscope.workers import one_thread

__all__ = ["ModeBasis", "Propagation", "finite_response", "odd_response", "propagation_steps"]


_AMPLITUDES = np.linspace(0.125, 1.0, 8)  # shares of the largest one


_NO_BEND = dict.fromkeys(("amplitudes", "response"), np.full(len(_AMPLITUDES), np.nan))


_TOLERANCE, _PRODUCTS = 1e-2, 80  # of the leading eigenvalue


_CHUNK, _FLOOR = 8, 1e-12  # directions at a time; of an eigenvalue, as in the energies of modes


def propagation_steps(config: SyncConfig) -> list[int]:
    """Reverse steps at which blocks are differentiated, evenly spaced from the first to the last.

    Examples
    --------
    >>> propagation_steps(SyncConfig(steps=16, propagation_steps=3))
    [0, 8, 15]
    """
    spaced = np.linspace(0, config.steps - 1, min(config.propagation_steps, config.steps))
    return [int(step) for step in np.unique(np.round(spaced))]


@dataclass(frozen=True, kw_only=True, eq=False)
class ModeBasis:
    """Leading and trailing modes of what replicas differ in at the first reverse step.

    Attributes
    ----------
    modes
        Unit vectors for each block's input: the leading ones, then the trailing ones.
    ranks
        Their places among all modes, from 1.
    """

    modes: list[Float[Tensor, "modes N width"]]
    ranks: Int[NDArray[np.int64], "layers modes"]


def odd_response(
    propagator: Propagator,
    mode: Float[Tensor, "N width"],
    amplitudes: Float[NDArray[np.float64], "n"],
) -> Float[NDArray[np.float64], "n"]:
    r"""$f(a)$ of the module, the image of a finite difference along a mode; mean over states.

    Parameters
    ----------
    propagator
        The uncoupled block at its symmetric states.
    mode
        A unit vector.
    amplitudes
        a, of the difference $h = (H^A - H^B)/\sqrt2$ of two replicas.

    Notes
    -----
    Two runs of the block for each amplitude. The slope at zero is the modal gain at g = 0.
    """
    block, H0 = propagator.block, propagator.H0
    r = mode.to(H0)
    found = []
    for a in amplitudes:
        h = float(a) / 2**0.5 * r
        moved = (
            Propagator(block, H0 + h).next_state - Propagator(block, H0 - h).next_state
        ) / 2**0.5
        found.append(float(inner_product(r.double(), moved.double()).mean()))
    return np.asarray(found)


def finite_response(
    propagator: Propagator,
    mode: Float[Tensor, "N width"],
    projections: Float[NDArray[np.float64], "pairs"],
) -> dict[str, NDArray[np.float64]]:
    """Amplitudes up to min(rms, c/3m) of the projections, and f there; NaN without separation."""
    found = mixture_moments(projections)
    if no_separation(found) is not None:
        return _NO_BEND
    amplitudes = _AMPLITUDES * min((found.m2 + found.c) ** 0.5, found.c / (3 * found.m2**0.5))
    return {"amplitudes": amplitudes, "response": odd_response(propagator, mode, amplitudes)}


class Propagation:
    """Measures the propagators of all blocks, one reverse step a shard.

    Parameters
    ----------
    denoiser, config
        The model, in float32 or float64, and what was asked for.
    readings
        For each coupling, 0 among them, what `ModeReading` read.
    shards
        Where finished steps are written.
    advance
        Told each block that is done; `work` says how many there are.
    """

    def __init__(
        self,
        denoiser: Denoiser,
        config: SyncConfig,
        readings: Mapping[float, Arrays],
        shards: Shards,
        advance: Callable[[int], None],
    ) -> None:
        self._denoiser, self._config, self._readings = denoiser, config, readings
        self._shards, self._advance = shards, advance
        self._states = min(config.propagation_states, config.pairs)
        self._couplings = (0.0, *(g for g in config.couplings if g))
        self._basis: ModeBasis | None = None
        self._latents: dict[int, Tensor] = {}
        self.steps = propagation_steps(config)

    def work(self) -> int:
        """Blocks to differentiate, each step counted."""
        return len(self.steps) * len(self._readings[0.0]["gram"])

    def tables(self) -> dict[str, pd.DataFrame] | Unavailable:
        """Tables ``propagation``, ``assumptions``, ``mode_commitment`` and ``speciation``.

        Or the reason why there are none: blocks that cannot be cut open at their attention, half
        precision, too few pairs for the bands.
        """
        band, couplings = self._config.band, self._couplings
        refusal = self._refusal()
        if refusal is not None:
            return refusal
        try:
            with one_thread():
                named = {g: self._named(g) for g in couplings}
                responses = [self._response(step) for step in self.steps]
        except UnsupportedModelError as error:
            return Unavailable(str(error))
        ranks = named[0.0]["ranks"]
        overlaps = {g: arrays["overlap"] for g, arrays in named.items()}
        return {
            "propagation": gain_table(responses, couplings, band),
            "assumptions": assumption_table(responses, band),
            "mode_commitment": mode_commitment_table(responses, self._readings, ranks, overlaps),
            "speciation": speciation_table(responses, self._readings[0.0]),
        }

    def _refusal(self) -> Unavailable | None:
        pairs, band = self._config.pairs, self._config.band
        dtype = next(self._denoiser.loaded.model.parameters()).dtype
        if dtype not in (torch.float32, torch.float64):
            return Unavailable(
                f"derivatives in {str(dtype).removeprefix('torch.')} lose most of their digits; "
                "take --dtype float32"
            )
        if 2 * band > pairs:
            return Unavailable(
                f"{pairs} pairs have at most {pairs} modes and two bands of {band} need "
                f"{2 * band}; take more pairs or a smaller band"
            )
        return None

    def _name(self, *parts: object) -> str:
        # Settings that are not in the fingerprint are in the name.
        start = ("blocks", self._config.labels[0], f"b{self._config.band}")
        return "-".join(str(part) for part in (*start, *parts))

    def _named(self, g: float) -> Arrays:
        """Ranks of the modes, and how much of each is in the mode of that rank under coupling."""
        name = self._name("modes", f"g{g:g}")
        return self._shards.arrays(name, lambda: self._overlaps(g), {"g": g})

    def _overlaps(self, g: float) -> Arrays:
        free = self._free_basis()
        other = free if g == 0 else self._made_basis(g)
        shared = [
            inner_product(a.double(), b.double()).square().cpu().numpy()
            for a, b in zip(free.modes, other.modes, strict=True)
        ]
        return {"ranks": free.ranks, "overlap": np.stack(shared)}

    def _free_basis(self) -> ModeBasis:
        if self._basis is None:
            self._basis = self._made_basis(0.0)
        return self._basis

    @torch.no_grad()
    def _made_basis(self, g: float) -> ModeBasis:
        """Modes from one pass of all pairs at the first reverse step."""
        config, model = self._config, self._denoiser.loaded.model
        sampler, noise = pair_sampler(self._denoiser, config, config.labels[0], eta=0.0)
        inputs = self._inputs(noise.initial(config.mode_sigma), sampler.clock.times[0])
        modes = _Modes(config.pairs, config.band)
        with couple(model, g) if g else nullcontext():
            tap_pass(model, [PlainBatch(inputs=inputs)], {"modes": modes})
        return modes.basis()

    def _inputs(self, x: Tensor, time: int) -> dict[str, Any]:
        """What the denoiser gives its model, the branch with labels where it is guided."""
        denoiser = self._denoiser
        model = denoiser.loaded.model
        name = next(iter(inspect.signature(model.forward).parameters))
        given: dict[str, Any] = {
            name: x.to(next(model.parameters()).dtype),
            "timestep": torch.full((len(x),), time, device=x.device),
        }
        if denoiser.classes:
            given["class_labels"] = self._labels(len(x))
        return given

    def _labels(self, rows: int) -> Tensor:
        return torch.full((rows,), self._config.labels[0], device=self._denoiser.device)

    @torch.no_grad()
    def _latent(self, step: int) -> Tensor:
        """Symmetric states of a step, from the middles of the first pairs, without noise."""
        if not self._latents:
            denoiser, config = self._denoiser, self._config
            sampler, noise = pair_sampler(denoiser, config, config.labels[0], eta=0.0)
            x, clock = noise.initial(0.0)[: self._states], sampler.clock
            labels = self._labels(len(x)) if denoiser.classes else None
            for done in range(self.steps[-1] + 1):
                if done in self.steps:
                    self._latents[done] = x
                found = denoiser.noise(x, clock.times[done], labels, config.guidance)
                x = clock.step(found, done, x, eta=0.0, noise=None)
        return self._latents[step]

    def _response(self, step: int) -> StepResponse:
        kept = self._readings[0.0]["kept"]
        near = int(kept[np.abs(kept - step).argmin()])
        middle = step == self.steps[len(self.steps) // 2]
        kind = "eigenvalue" if middle else "gains"
        place = int(np.flatnonzero(kept == near)[0])
        arrays = self._shards.arrays(
            self._name(f"n{self._states}", f"step{step}", f"near{near}", kind),
            lambda: self._measured(step, place, middle),
            {"step": step, "near": near},
        )
        return StepResponse(step=step, near=near, **arrays)

    def _measured(self, step: int, place: int, middle: bool) -> Arrays:
        """Everything about one reverse step; ``place`` is that of the kept step next to it."""
        model, basis = self._denoiser.loaded.model, self._free_basis()
        time = self._denoiser.clock(self._config.steps).times[step]
        inputs = self._inputs(self._latent(step), time)
        found: dict[str, list[NDArray[np.float64]]] = {}
        propagators = []
        for layer, modes in enumerate(basis.modes):
            live = live_block(model, inputs, layer)
            propagator = Propagator(live.block, live.H0, chunk=_CHUNK)
            gains = modal_gains(propagator, modes, 0.0)
            told = {
                "channels": _array(gains.direct, gains.routing, gains.query, gains.key),
                "eigenvalue": self._eigenvalue(inputs, layer) if middle else np.full(2, np.nan),
                **self._bend(propagator, modes[0], layer, place),
            }
            for name, value in told.items():
                found.setdefault(name, []).append(value)
            propagators.append(propagator)
            self._advance(1)
        arrays = {name: np.stack(values) for name, values in found.items()}
        eigenvalue = arrays.pop("eigenvalue")
        return arrays | {
            "channels": arrays["channels"].swapaxes(0, 1).copy(),
            "eigenvalue": eigenvalue[:, 0].copy(),
            "residual": eigenvalue[:, 1].copy(),
            "products": _multiplied(propagators, basis.modes[0]),
        }

    def _eigenvalue(self, inputs: Mapping[str, Any], layer: int) -> NDArray[np.float64]:
        """Real part for the first state, and its residual; NaN where it was not settled."""
        one = {name: value[:1] for name, value in inputs.items()}
        live = live_block(self._denoiser.loaded.model, one, layer)
        found = leading_eigenvalue(
            Propagator(live.block, live.H0), 0.0, tolerance=_TOLERANCE, products=_PRODUCTS
        )
        return np.asarray([found.value.real if found.converged else np.nan, found.residual])

    def _bend(
        self, propagator: Propagator, mode: Tensor, layer: int, place: int
    ) -> dict[str, NDArray[np.float64]]:
        if layer == 0:  # what enters the first block was not read
            return _NO_BEND
        gram = self._readings[0.0]["gram"][layer - 1, place]
        return finite_response(propagator, mode, leading_projections(gram))


def _array(*parts: Tensor) -> NDArray[np.float64]:
    return np.asarray(torch.stack(parts).double().cpu())


def _multiplied(propagators: list[Propagator], modes: Tensor) -> NDArray[np.float64]:
    """Product of gains and gain of the composition; NaN where blocks do not follow each other."""
    try:
        found = modal_product(propagators, modes, 0.0)
    except InvalidInputError:  # something else, as a long skip, is added on the way
        return np.full((2, len(modes), len(propagators[0].H0)), np.nan)
    return _array(found.product, found.measured)


class _Modes(TapProbe):
    """Turns the differences of every block's input into modes, and drops them."""

    hears = ("states",)

    def __init__(self, pairs: int, band: int) -> None:
        self._pairs, self._band = pairs, band
        self._found: list[tuple[Tensor, NDArray[np.int64]]] = []

    def block(self, event: BlockPass) -> None:
        hidden = event.hidden_in[: 2 * self._pairs]
        difference = (hidden[: self._pairs] - hidden[self._pairs :]) / 2**0.5
        self._found.append(self._modes_of(difference, event.site.index + 1))

    def _modes_of(self, difference: Tensor, layer: int) -> tuple[Tensor, NDArray[np.int64]]:
        rows, band = difference.flatten(1), self._band
        gram = stacked_gram(rows, rows)[: len(rows), : len(rows)]
        values, vectors = torch.linalg.eigh(gram)
        present = int((values > _FLOOR * values[-1].clamp(min=0)).sum())
        if present < 2 * band:
            raise UnsupportedModelError(
                f"What enters block {layer} differs in {present} modes only; two bands of {band} "
                f"need {2 * band}. Take a smaller band."
            )
        chosen = np.r_[:band, present - band : present]
        picked = vectors.flip(1)[:, torch.from_numpy(chosen).to(vectors.device)]
        modes = torch.nn.functional.normalize(picked.to(rows).mT @ rows, dim=1)
        return modes.reshape(-1, *difference.shape[1:]), chosen + 1

    def basis(self) -> ModeBasis:
        modes, ranks = zip(*self._found, strict=True)
        return ModeBasis(modes=list(modes), ranks=np.stack(ranks))
