r"""Learning rate with a warm-up, a plateau and a decay, bound by steps and by the clock.

The plateau ends when the time or the steps left are just the share kept for the decay, or when the
held-out loss has stopped falling; the rate then goes to zero as $1 - \sqrt{x}$. So a slow machine
gets a shorter run, not a cut one.
"""

from dataclasses import dataclass, field

__all__ = ["Schedule"]

# Compilation falls into the first steps; the pace is measured after them.
SETTLED = 20


@dataclass
class Schedule:
    """The rate at each step.

    Attributes
    ----------
    peak, warmup, decay
        Highest rate, steps up to it, and the share of the run in which it falls.
    steps, seconds
        The run ends at whichever is reached first.
    patience
        Evaluations without a better held-out loss after which the decay begins.
    """

    peak: float
    warmup: int
    decay: float
    steps: int
    seconds: float
    patience: int
    horizon: int = field(init=False)
    _settled: float | None = None
    _falls: tuple[int, int, float] | None = None
    _best: float = float("inf")
    _misses: int = 0

    def __post_init__(self) -> None:
        self.horizon = self.steps

    def rate(self, step: int, elapsed: float) -> float:
        """The learning rate of a step; it also keeps the account of time."""
        if step == SETTLED:
            self._settled = elapsed
        if self._falls is None:
            self._look_ahead(step, elapsed)
            if step >= (1 - self.decay) * self.horizon or self._misses >= self.patience > 0:
                end = max(step + 1, round(step / (1 - self.decay)))
                self.horizon = min(self.horizon, end)
                self._falls = (step, self.horizon, elapsed)
        if self._falls is None:
            return self.peak * min(1.0, (step + 1) / self.warmup)
        return self.peak * (1 - self._fallen(step, elapsed) ** 0.5)

    def _look_ahead(self, step: int, elapsed: float) -> None:
        if self._settled is not None and step > 2 * SETTLED:
            pace = (elapsed - self._settled) / (step - SETTLED)
            self.horizon = min(self.steps, int(step + max(0.0, self.seconds - elapsed) / pace))

    def _fallen(self, step: int, elapsed: float) -> float:
        start, end, since = self._falls or (0, 1, 0.0)
        by_step = (step - start) / max(1, end - start)
        by_clock = (elapsed - since) / max(1e-9, self.seconds - since)
        return min(1.0, max(by_step, by_clock))

    def told(self, loss: float) -> bool:
        """Take note of a held-out loss; whether it is the best so far."""
        better = loss < self._best
        self._best, self._misses = (loss, 0) if better else (self._best, self._misses + 1)
        return better

    def over(self, step: int, elapsed: float) -> bool:
        """Whether the run ends before this step."""
        return step >= self.horizon or elapsed >= self.seconds

    @property
    def falling_since(self) -> int | None:
        """The step at which the decay began."""
        return None if self._falls is None else self._falls[0]
