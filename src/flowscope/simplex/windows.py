r"""Certificates over a window of a path of laws: how far it has moved, against how far it may.

A window W of a path p⁰, p¹, … holds \|W\| steps ℓ and \|W\| + 1 laws. With D_W = Σ KL(pˡ‖pˡ⁻¹),

.. math:: \mathrm{TV}(\text{first}, \text{last}) \le \sum_\ell \mathrm{TV}_\ell
          \le \sum_\ell \sqrt{\mathrm{KL}_\ell / 2} \le \sqrt{|W|\, D_W / 2}

and no law of the window has another top outcome than the first if one of these is below m/2, half
the smallest top-2 margin of its laws. Source 000 §8.3 (eqs 4–5) writes √(D_W/2), without \|W\|, and
asks for less than m; both are errors, and the published rule is right about the window only
because it also looks at every law. Whatever the rule, it speaks of laws that have been seen: no
bound here says anything about the step after the window.

Laws over different visible sets are compared on the sets' intersection over the whole window.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.simplex.divergence import kl_divergence, total_variation
from flowscope.simplex.probability import ArrayLike, as_probabilities

__all__ = ["PathSteps", "WindowBounds", "matched_support", "path_steps", "window_bounds"]


@dataclass(frozen=True, kw_only=True, eq=False)
class PathSteps:
    """Steps of paths of laws; the laws of a path are on the last axis.

    Attributes
    ----------
    divergence, variation
        KL(pˡ‖pˡ⁻¹) and TV(pˡ, pˡ⁻¹) of each step, ``[*batch, T]``.
    margin, top
        Top-2 margin and top outcome of each law, ``[*batch, T + 1]``.
    """

    divergence: Float[Tensor, "*batch T"]
    variation: Float[Tensor, "*batch T"]
    margin: Float[Tensor, "*batch laws"]
    top: Int[Tensor, "*batch laws"]


@dataclass(frozen=True, kw_only=True, eq=False)
class WindowBounds:
    """Bounds on how far a path moves over each window, ``[*batch, windows]``.

    Attributes
    ----------
    width
        Steps in a window, |W|.
    divergence
        D_W, the sum of KL over the steps.
    published
        √(D_W/2), as source 000 eq. 5 has it: no bound on the window.
    corrected, roots, path
        √(|W| D_W/2), Σ√(KL/2) and ΣTV: bounds on TV(first, last), each sharper than the one before.
    margin
        Smallest top-2 margin of the laws of the window.
    same
        Whether all laws of the window have the same top outcome.
    """

    width: int
    divergence: Float[Tensor, "*batch windows"]
    published: Float[Tensor, "*batch windows"]
    corrected: Float[Tensor, "*batch windows"]
    roots: Float[Tensor, "*batch windows"]
    path: Float[Tensor, "*batch windows"]
    margin: Float[Tensor, "*batch windows"]
    same: Bool[Tensor, "*batch windows"]

    @property
    def passes_as_published(self) -> Bool[Tensor, "*batch windows"]:
        """Source 000 §8.3: √(D_W/2) below the margin, and no flip among the laws of the window."""
        return (self.published < self.margin) & self.same

    @property
    def passes(self) -> Bool[Tensor, "*batch windows"]:
        """The corrected rule: √(|W| D_W/2) below half the margin."""
        return self.corrected < self.margin / 2

    @property
    def passes_by_path(self) -> Bool[Tensor, "*batch windows"]:
        """The sharpest of these rules: ΣTV below half the margin."""
        return self.path < self.margin / 2


def matched_support(
    laws: Float[Tensor, "laws *batch V"], visible: Bool[Tensor, "laws *batch V"]
) -> Float[Tensor, "laws *batch V"]:
    r"""Laws of one window on the outcomes that all of them see.

    .. math:: \tilde p^\ell_j = p^\ell_j \Big/ \sum_{k \in S} p^\ell_k, \qquad
              S = \bigcap_{\ell \in W} S_\ell

    Parameters
    ----------
    laws : probability vectors, the laws of the window on the first axis.
    visible : the outcomes S_ℓ that each law sees.

    Raises
    ------
    InvalidInputError
        If laws are no probability vectors, the shapes differ, or a law has no mass on S.

    Notes
    -----
    Source 000 eq. 4 renormalises on each S_ℓ, where the divergence of two laws may be infinite.

    Examples
    --------
    >>> laws = torch.tensor([[0.5, 0.3, 0.2], [0.6, 0.4, 0.0]])
    >>> matched_support(laws, laws > 0)[0]
    tensor([0.6250, 0.3750, 0.0000])
    """
    x = as_probabilities(laws, "laws")
    if visible.shape != x.shape or visible.dtype != torch.bool:
        raise InvalidInputError(
            f"visible must hold one truth value per outcome of each law, {tuple(x.shape)}; found "
            f"{visible.dtype} of shape {tuple(visible.shape)}. Pass laws > 0, or the sets seen."
        )
    kept = x * visible.all(0)
    mass = kept.sum(-1, keepdim=True)
    if not bool((mass > 0).all()):
        raise InvalidInputError(
            "the laws of a window must have mass on the outcomes that all of them see; found a law "
            "with none there. Take a shorter window, or drop that path."
        )
    return kept / mass


def path_steps(laws: Float[Tensor, "laws *batch V"] | ArrayLike) -> PathSteps:
    """Divergence, distance, margin and top outcome along paths of laws.

    Parameters
    ----------
    laws : probability vectors; the laws of each path are on the first axis, at least two.

    Raises
    ------
    InvalidInputError
        If laws are no probability vectors, or there is only one.

    Examples
    --------
    >>> steps = path_steps([[0.5, 0.5], [0.6, 0.4], [0.8, 0.2]])
    >>> steps.variation
    tensor([0.1000, 0.2000], dtype=torch.float64)
    """
    x = as_probabilities(laws, "laws")
    if x.ndim < 2 or len(x) < 2:
        raise InvalidInputError(
            f"a path needs at least two laws, on the first axis; found shape {tuple(x.shape)}."
        )
    values, places = x.topk(2, dim=-1)
    return PathSteps(
        divergence=_last(kl_divergence(x[1:], x[:-1])),
        variation=_last(total_variation(x[1:], x[:-1])),
        margin=_last(values[..., 0] - values[..., 1]),
        top=_last(places[..., 0]),
    )


def _last(x: Tensor) -> Tensor:
    """The first axis as the last."""
    return x.movedim(0, -1)


def window_bounds(steps: PathSteps, width: int) -> WindowBounds:
    """Bounds of every window of ``width`` steps; window k holds laws k … k + width.

    Parameters
    ----------
    steps : of the paths, from :func:`path_steps`.
    width : steps in a window.

    Raises
    ------
    InvalidInputError
        If the width is below 1 or exceeds the number of steps.

    Examples
    --------
    >>> steps = path_steps([[0.9, 0.1], [0.85, 0.15], [0.8, 0.2]])
    >>> bounds = window_bounds(steps, 2)
    >>> bounds.path, bounds.margin, bounds.passes_by_path
    (tensor([0.1000], dtype=torch.float64), tensor([0.6000], dtype=torch.float64), tensor([True]))
    """
    count = steps.divergence.shape[-1]
    if not 1 <= width <= count:
        raise InvalidInputError(
            f"a window holds from 1 step to the {count} of the path; found a width of {width}. "
            "Take a narrower window."
        )
    # Rounding may leave a divergence of equal laws a little below 0.
    divergences = steps.divergence.clamp_min(0.0).unfold(-1, width, 1)
    total = divergences.sum(-1)
    tops = steps.top.unfold(-1, width + 1, 1)
    return WindowBounds(
        width=width,
        divergence=total,
        published=(total / 2).sqrt(),
        corrected=(width * total / 2).sqrt(),
        roots=(divergences / 2).sqrt().sum(-1),
        path=steps.variation.unfold(-1, width, 1).sum(-1),
        margin=steps.margin.unfold(-1, width + 1, 1).amin(-1),
        same=(tops == tops[..., :1]).all(-1),
    )
