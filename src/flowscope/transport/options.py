"""What the iterative solvers can be told."""

from typing import Literal, TypeAlias, TypedDict

from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.transport.scaling import Settings

__all__ = ["Options", "Potentials", "settings_of"]

Potentials: TypeAlias = tuple[Tensor, Tensor]


class Options(TypedDict, total=False):
    """What the iterative solvers share.

    Attributes
    ----------
    epsilon, relative_epsilon
        ε, absolute or in units of the median finite cost; exactly one of them.
    tolerance
        ℓ₁ marginal error, over the total mass, at which a problem is done; 1e-3.
    max_iterations
        Most sweeps, those of the annealing included; 10,000.
    anneal
        Approach a small ε from above; True. A warm start is not annealed.
    acceleration
        ``"auto"``: Anderson's, safeguarded, with five steps of memory, and Newton steps for small
        matrices that a hundred sweeps have not finished. ``"anderson"`` alone, or ``None``.
    initial
        Potentials (f, g) to start from, for instance those of a neighbouring problem.
    on_failure
        ``"raise"`` a ConvergenceError that carries the coupling reached, or ``"return"`` it.
    """

    epsilon: float | Tensor | None
    relative_epsilon: float | None
    tolerance: float
    max_iterations: int
    anneal: bool
    acceleration: Literal["auto", "anderson"] | None
    initial: Potentials | None
    on_failure: Literal["raise", "return"]


def settings_of(options: Options) -> Settings:
    """Settings of the iteration, checked."""
    tolerance, most = options.get("tolerance", 1e-3), options.get("max_iterations", 10_000)
    acceleration = options.get("acceleration", "auto")
    on_failure = options.get("on_failure", "raise")
    if not tolerance > 0 or most < 1:
        raise InvalidInputError(
            f"tolerance must be positive and max_iterations at least 1; found {tolerance} and "
            f"{most}."
        )
    if acceleration not in ("auto", "anderson", None) or on_failure not in ("raise", "return"):
        raise InvalidInputError(
            "acceleration must be 'auto', 'anderson' or None and on_failure 'raise' or 'return'; "
            f"found {acceleration!r} and {on_failure!r}."
        )
    return Settings(
        tolerance=tolerance,
        max_iterations=most,
        anneal=options.get("anneal", True),
        accelerate=acceleration is not None,
        newton=acceleration == "auto",
    )
