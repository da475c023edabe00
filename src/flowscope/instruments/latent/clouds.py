"""Clouds of tokens at every layer, of the model and of what stands beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from numpy.typing import NDArray
from torch import Tensor, nn

from flowscope.flows.entropy.subsampling import LEAST_GROUPS, half_samples
from flowscope.instruments.latent.subject import LatentBench
from flowscope.instruments.latent.tokens import (
    Choice,
    chosen_tokens,
    listed_tokens,
    shuffled_batch,
)
from flowscope.models.prompts import Batch
from flowscope.probes import tap_pass
from flowscope.probes.layers.clouds import CloudProbe
from flowscope.records import Unavailable
from flowscope.tap import Tail

__all__ = ["FEWEST_PROMPTS", "FEWEST_TYPES", "Clouds", "Sample", "entropy_refusal", "made_clouds"]

FEWEST_PROMPTS = 20
"""Prompts below which no entropy is read."""

FEWEST_TYPES = 300
"""Distinct tokens below which no entropy is read."""

_ALIKE = 0.01  # distance of directions of one prefix that is rounding
_HALVES, _CHOICE = 1, 2  # keys of random numbers


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """Which tokens of the clouds belong together, and the halves of their prompts.

    Attributes
    ----------
    places
        Numbers of the tokens.
    prompt, kind
        Prompt and type of each.
    halves
        Which of them belong to each half of the prompts; none with fewer than 8 prompts.
    """

    name: str
    places: Int64[Tensor, "n"]
    prompt: Int64[Tensor, "n"]
    kind: Int64[Tensor, "n"]
    halves: Bool[Tensor, "draws n"]

    @property
    def groups(self) -> int:
        """Number of prompts."""
        return len(torch.unique(self.prompt))


@dataclass(frozen=True, kw_only=True, eq=False)
class Clouds:
    """Directions and lengths of the chosen tokens at every depth.

    Attributes
    ----------
    directions, lengths
        Before the first block and after every block.
    samples
        ``all`` and, where tokens have types, ``types``.
    tail
        What follows the last block.
    massive, repeated
        Tokens left out because they are massive, or have the state of another token.
    copies
        Prompts left out because they repeat an earlier one.
    """

    directions: Float[Tensor, "n depths d"]
    lengths: Float[Tensor, "n depths"]
    samples: dict[str, Sample]
    tail: Tail | Unavailable
    massive: int
    repeated: int
    copies: int = 0

    @property
    def layers(self) -> int:
        """Number of blocks."""
        return self.directions.shape[1] - 1


def made_clouds(
    bench: LatentBench, model: nn.Module, name: str, *, shuffled: bool = False
) -> Clouds:
    """Run a model over all prompts and keep the states of the chosen tokens."""
    config, material = bench.config, bench.subject.material
    deal = shuffled_batch(config.seed)

    def batches() -> Iterator[Batch]:
        made = material.batches(None)
        return (deal(batch) for batch in made) if shuffled else made

    tokens = listed_tokens(model, batches())
    choice = chosen_tokens(tokens, config.points, np.random.default_rng([config.seed, _CHOICE]))
    bench.list_pass(name, material.size)
    probe = CloudProbe(choice.by_prompt)
    pieces = tap_pass(
        model, batches(), {"clouds": probe}, advance=bench.counter(name, material.size).advance
    )["clouds"]
    parts = {
        field: np.concatenate([piece.arrays[field] for piece in pieces])
        for field in ("prompt", "position", "directions", "lengths", "massive")
    }
    generators = {
        sample: bench.generator(_HALVES, number) for number, sample in enumerate(choice.samples)
    }
    return _clouds(parts, choice, probe.tail, config.halves, generators)


def _clouds(
    parts: dict[str, Any],
    choice: Choice,
    tail: Tail | Unavailable,
    draws: int,
    generators: dict[str, torch.Generator],
) -> Clouds:
    order = np.lexsort([parts["position"], parts["prompt"]])
    directions = torch.as_tensor(parts["directions"][order])
    massive = parts["massive"][order]
    repeated = _repeated(choice.tokens.prefix, directions[:, -1])
    kept = ~massive & ~repeated
    samples = {}
    for name, member in choice.samples.items():
        places = torch.as_tensor(np.flatnonzero(member & kept))
        prompt = torch.as_tensor(choice.tokens.prompt)[places]
        enough = len(torch.unique(prompt)) >= LEAST_GROUPS
        samples[name] = Sample(
            name=name,
            places=places,
            prompt=prompt,
            kind=torch.as_tensor(choice.tokens.kind)[places],
            halves=half_samples(prompt, draws, generators[name])
            if enough
            else torch.zeros(0, len(places), dtype=torch.bool),
        )
    return Clouds(
        directions=directions,
        lengths=torch.as_tensor(parts["lengths"][order]),
        samples=samples,
        tail=tail,
        massive=int(massive.sum()),
        repeated=int((repeated & ~massive).sum()),
        copies=choice.tokens.copies,
    )


def _repeated(prefix: NDArray[np.int64], last: Float[Tensor, "n d"]) -> NDArray[np.bool_]:
    """Tokens whose prompt up to there, and whose state, is that of an earlier one."""
    found = np.zeros(len(prefix), bool)
    if (prefix < 0).any():
        return found
    first: dict[int, int] = {}
    for place, key in enumerate(prefix.tolist()):
        earlier = first.setdefault(key, place)
        if earlier != place:
            found[place] = float((last[place] - last[earlier]).norm()) < _ALIKE
    return found


def entropy_refusal(clouds: Clouds) -> str:
    """Why no entropy is read, or nothing."""
    whole = clouds.samples["all"]
    if whole.groups < FEWEST_PROMPTS:
        return (
            f"an entropy needs {FEWEST_PROMPTS} prompts with tokens that count; found "
            f"{whole.groups}{_copies(clouds)}. Give more texts"
        )
    if "types" in clouds.samples and len(clouds.samples["types"].places) < FEWEST_TYPES:
        return (
            f"an entropy needs {FEWEST_TYPES} distinct tokens; found "
            f"{len(clouds.samples['types'].places)}{_copies(clouds)}. Give more text"
        )
    return ""


def _copies(clouds: Clouds) -> str:
    """How many prompts repeat others, in words."""
    if not clouds.copies:
        return ""
    one = clouds.copies == 1
    return f", because {clouds.copies} prompt{' repeats' if one else 's repeat'} others"
