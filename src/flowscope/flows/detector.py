r"""Watching a path as it unrolls: an online detector of jumps, for monitors.

The squared steps v₀, v₁, … come one at a time. The last W of them are the window, what was quiet
before it is the history, and

.. math:: s_k = \frac{\tfrac1W \sum_{i=k-W+1}^{k} v_i}{\max(\text{floor},\;
          m \cdot \operatorname{median}\{v_i : i \le k - W, \text{ quiet}\})}

is the severity: above 1 raised, above 2 an event, after which the window begins anew. Source 000
Algorithm 1 divides std by mean of the window, which is 0/0 when nothing moves; takes its threshold
from the window that contains the spike, so that spikes raise it; and updates its sum by
differences, so that one large step leaves a rounding error behind for good. Here a window of zeros
has severity 0, the threshold knows only what came before the window and was quiet, and the sum is
taken afresh. An audit, which sees all layers at once, uses :func:`flowscope.flows.segments_of`.
"""

import math
from collections import deque
from dataclasses import dataclass
from statistics import median
from typing import Literal, TypeAlias

from flowscope.errors import InvalidInputError

__all__ = ["Detection", "JumpDetector"]

Level: TypeAlias = Literal["learning", "quiet", "raised", "event"]

_EVENT = 2.0


@dataclass(frozen=True, kw_only=True)
class Detection:
    """What one value said.

    Attributes
    ----------
    index : its number, from 0.
    value : the value itself.
    mean : mean of the window that ends with it.
    threshold : m times the median of the quiet history, or the floor; None while learning.
    severity : mean over threshold; None while learning, ∞ for motion after a history of zeros.
    level : "learning", "quiet" (severity ≤ 1), "raised" (≤ 2) or "event".
    """

    index: int
    value: float
    mean: float
    threshold: float | None
    severity: float | None
    level: Level

    @property
    def event(self) -> bool:
        """Whether a monitor should act."""
        return self.level == "event"


class JumpDetector:
    r"""Detector of jumps in a stream of squared steps.

    .. math:: s = \bar v_{\text{window}} \,/\, \max(\text{floor}, m \cdot \tilde v_{\text{quiet}})

    Parameters
    ----------
    window : W, values averaged; 3, as far as jumps of an audit cluster.
    multiplier : m, how far above the quiet median the threshold lies; 3.
    minimum : quiet values needed before anything is judged; 5.
    floor : smallest threshold, in the units of the values; 0. The base threshold τ₀ of the source.
    memory : quiet values remembered, the oldest forgotten first; 256.

    Raises
    ------
    InvalidInputError
        If a setting is out of range.

    Notes
    -----
    O(W + memory) per value. Values that were raised, or in the window of an event, never enter the
    history: a lasting change of level stays raised until the detector is made anew.

    Examples
    --------
    >>> detector = JumpDetector(window=2)
    >>> found = [detector.update(v) for v in [0.1, 0.2, 0.1, 0.2, 0.1, 0.2, 0.1, 0.2, 4.0]]
    >>> found[-1].level, round(found[-1].severity, 2)
    ('event', 7.0)
    """

    def __init__(
        self,
        *,
        window: int = 3,
        multiplier: float = 3.0,
        minimum: int = 5,
        floor: float = 0.0,
        memory: int = 256,
    ):
        _check(window, multiplier, minimum, floor, memory)
        self._size, self._minimum = window, minimum
        self._multiplier, self._floor = multiplier, floor
        self._window: deque[tuple[float, bool]] = deque()
        self._quiet: deque[float] = deque(maxlen=memory)
        self._count = 0

    def update(self, value: float) -> Detection:
        """Take the next value and say what it shows.

        Parameters
        ----------
        value : the next ‖Δz‖², or any other size of a step that is not negative.

        Raises
        ------
        InvalidInputError
            If the value is NaN, infinite or negative; it is then not taken.
        """
        if not (math.isfinite(value) and value >= 0):
            raise InvalidInputError(
                f"A step must be finite and not negative; found {value}. Look for it upstream."
            )
        self._make_room()
        mean = math.fsum([value, *(v for v, _ in self._window)]) / (len(self._window) + 1)
        threshold = self._threshold()
        severity = None if threshold is None else _severity(mean, threshold)
        level = _level(severity)
        self._window.append((float(value), level in ("learning", "quiet")))
        if level == "event":
            self._window.clear()
        self._count += 1
        return Detection(
            index=self._count - 1,
            value=float(value),
            mean=mean,
            threshold=threshold,
            severity=severity,
            level=level,
        )

    def _make_room(self) -> None:
        """Move the oldest value out of a full window, into the history if it was quiet."""
        if len(self._window) == self._size:
            value, quiet = self._window.popleft()
            if quiet:
                self._quiet.append(value)

    def _threshold(self) -> float | None:
        if len(self._quiet) < self._minimum:
            return None
        return max(self._floor, self._multiplier * median(self._quiet))


def _severity(mean: float, threshold: float) -> float:
    if threshold == 0:
        return math.inf if mean > 0 else 0.0
    return mean / threshold


def _level(severity: float | None) -> Level:
    if severity is None:
        return "learning"
    if severity > _EVENT:
        return "event"
    return "raised" if severity > 1 else "quiet"


def _check(window: int, multiplier: float, minimum: int, floor: float, memory: int) -> None:
    for name, value, least in [
        ("window", window, 1),
        ("minimum", minimum, 1),
        ("memory", memory, minimum),
    ]:
        if value < least:
            raise InvalidInputError(f"{name} must be at least {least}; found {value}.")
    if not (math.isfinite(multiplier) and multiplier > 0):
        raise InvalidInputError(f"multiplier must be positive and finite; found {multiplier}.")
    if not (math.isfinite(floor) and floor >= 0):
        raise InvalidInputError(f"floor must be finite and not negative; found {floor}.")
