"""Several models run in lock-step: each pass waits after a block until the others are there.

A pass cannot be left in the middle of a block and taken up again, so that each one has a thread of
its own, a *lane*. One lane runs at a time: the caller hands the turn to a lane and waits until the
lane hands over an event, because it has reached a place where passes meet, is done, or has failed.
The result is the same at every run, and every lane sees the modes of torch of the caller (gradient,
inference, autocast, CUDA stream). A pass that is given up ends by an exception at the place where
it waits.
"""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from flowscope.errors import InvalidInputError
from flowscope.records import Unavailable
from flowscope.tap import Block, Chain, Tap
from flowscope.tap.dispatch import Watcher, eager_code, thread_watchers
from flowscope.tap.trace import mapped, outputs_in

__all__ = ["Event", "Lane", "Member", "in_lockstep"]

Job = Callable[[], Any]
DONE: Final = "done"
FAILED: Final = "failed"


class Event(NamedTuple):
    """Where a lane is: ``kind`` is "done", "failed", or the name of a place where lanes meet."""

    kind: str
    value: Any


Meet = Callable[[Sequence[Event]], Sequence[Any]]


class _GivenUpError(BaseException):
    """Ends a pass whose partners have failed; no ``Exception``, so that no model catches it."""


class Lane:
    """A thread that runs one pass at a time, only while its caller waits for it."""

    def __init__(self) -> None:
        self._turn, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._job: Job | None = None
        self._event = Event(DONE, None)
        self._answer: Any = None
        self._waits = self._given_up = False
        self._thread = threading.Thread(target=self._serve, daemon=True, name="flowscope lane")
        self._thread.start()

    def begin(self, job: Job) -> Event:
        """Run a job until its first event."""
        self._job, self._given_up = job, False
        return self._resumed()

    def proceed(self, answer: Any) -> Event:
        """Give a waiting job the answer to its event, and run it until the next."""
        self._answer = answer
        return self._resumed()

    def give_up(self) -> None:
        """End a job that waits; nothing happens where none does."""
        if self._waits:
            self._given_up = True
            self._resumed()

    def close(self) -> None:
        """End the thread."""
        self.give_up()
        self._turn.release()
        self._thread.join()

    def meet(self, kind: str, value: Any) -> Any:
        """Wait for the others and return the answer; called from the job."""
        self._event, self._waits = Event(kind, value), True
        self._back.release()
        self._turn.acquire()
        self._waits = False
        if self._given_up:
            raise _GivenUpError
        answer, self._answer = self._answer, None
        return answer

    def _resumed(self) -> Event:
        self._turn.release()
        try:
            self._back.acquire()
        except BaseException:  # the caller is interrupted: the job ends where it next waits
            self._back.acquire()
            self.give_up()
            raise
        event, self._event = self._event, Event(DONE, None)  # no state of a model stays here
        return event

    def _serve(self) -> None:
        while True:
            self._turn.acquire()
            job, self._job = self._job, None
            if job is None:
                return
            try:
                self._event = Event(DONE, job())
            except BaseException as failure:
                self._event = Event(FAILED, failure)
            del job
            self._back.release()


def in_lockstep(lanes: Sequence[Lane], jobs: Sequence[Job], meet: Meet) -> list[Any]:
    """Run one job per lane; returns what they return.

    Parameters
    ----------
    lanes, jobs
        As many of each.
    meet
        Given an event of every lane at each meeting, some of which may be done; returns the answer
        for every lane. It runs in the caller's thread, and raises where the events do not belong
        together.

    Raises
    ------
    BaseException
        What a job or ``meet`` raised; the other jobs are given up first.
    """
    try:
        events = [
            _unfailed(lane.begin(_under_modes_of_caller(job)))
            for lane, job in zip(lanes, jobs, strict=True)
        ]
        while any(event.kind != DONE for event in events):
            answers = meet(events)
            events = [
                _unfailed(lane.proceed(answer)) for lane, answer in zip(lanes, answers, strict=True)
            ]
        return [event.value for event in events]
    finally:
        for lane in lanes:
            lane.give_up()


def _unfailed(event: Event) -> Event:
    if event.kind == FAILED:
        raise event.value
    return event


def _under_modes_of_caller(job: Job) -> Job:
    """The job under the modes of torch of the thread that asks now."""
    grad, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    casts = [
        (kind, torch.get_autocast_dtype(kind))
        for kind in ("cpu", "cuda")
        if torch.is_autocast_enabled(kind)
    ]
    initialized = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    stream = torch.cuda.current_stream() if initialized else None

    def run() -> Any:
        with ExitStack() as modes:
            modes.enter_context(torch.inference_mode(inference))
            modes.enter_context(torch.set_grad_enabled(grad))
            for kind, dtype in casts:
                modes.enter_context(torch.autocast(kind, dtype=dtype))
            if stream is not None:
                modes.enter_context(torch.cuda.stream(stream))
            return job()

    return run


_Key = tuple[int, frozenset[str]]


class Member:
    """Runs a model in a lane; the pass waits before it begins and after each chosen block.

    It meets the others as "ready" with its chain of blocks, and as "block" with the index of the
    block and the state that leaves it. The answer to the latter replaces that state; None leaves
    the output of the block alone.

    Parameters
    ----------
    model
        The model; its modules are watched in the thread of the lane alone.
    layers
        After which blocks the pass waits; all when None.
    """

    def __init__(self, model: nn.Module, layers: Collection[int] | None) -> None:
        self._model, self._layers = model, layers
        self._root: nn.Module = getattr(model, "_orig_mod", model)
        self._undo = ExitStack()
        self._watched: set[str] = set()
        self._chains: dict[_Key, Chain] = {}
        self._running: Chain | None = None
        self._visits: dict[str, int] = {}
        self.lane = Lane()
        self._undo.callback(self.lane.close)

    def close(self) -> None:
        """End the lane and leave the model as it was."""
        self._undo.close()

    def run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run one pass; called in the lane."""
        named = frozenset(name for name, value in kwargs.items() if value is not None)
        key = (len(args), named)
        with eager_code():
            if key in self._chains:
                return self._met(self._chains[key], lambda: self._model(*args, **kwargs))
            return self._first(key, args, kwargs)

    def _first(self, key: _Key, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """A pass in which the blocks are found."""

        def around(proceed: Callable[..., Any], a: Any, k: Any) -> Any:
            if self._running is not None:  # the model runs inside its own pass
                return proceed(*a, **k)
            self._chains[key] = chain = _depth(tap)
            self._attach(chain)
            return self._met(chain, lambda: proceed(*a, **k))

        with Tap(self._model) as tap, ExitStack() as during:
            tap.on_attention(lambda call: None)  # so that the anatomy is found
            during.callback(thread_watchers().add(self._model, around))
            return self._model(*args, **kwargs)

    def _met(self, chain: Chain, run: Callable[[], Any]) -> Any:
        self.lane.meet("ready", chain)
        self._running, self._visits = chain, {}
        try:
            return run()
        finally:
            self._running = None

    def _attach(self, chain: Chain) -> None:
        for path in {block.path for block in chain.blocks} - self._watched:
            self._watched.add(path)
            module = self._root.get_submodule(path)
            self._undo.callback(thread_watchers().add(module, self._watcher(path)))

    def _watcher(self, path: str) -> Watcher:
        def around(proceed: Callable[..., Any], args: Any, kwargs: Any) -> Any:
            chain = self._running
            output = proceed(*args, **kwargs)
            if chain is None:
                return output
            number = self._visits.get(path, 0)
            self._visits[path] = number + 1
            block = _visited(chain, path, number)
            if self._layers is not None and block.index not in self._layers:
                return output
            state = outputs_in(output)[block.places[chain.streams[0]]]
            answer = self.lane.meet("block", (block.index, state))
            if answer is None:
                return output
            return mapped(output, Tensor, lambda t: answer if t is state else t)

        return around


def _depth(tap: Tap) -> Chain:
    depth = tap.anatomy.depth
    if isinstance(depth, Unavailable):
        raise InvalidInputError(
            f"There are no blocks after which states could move: {depth.reason}."
        )
    return depth


def _visited(chain: Chain, path: str, number: int) -> Block:
    visits = [block for block in chain.blocks if block.path == path]
    return visits[min(number, len(visits) - 1)]
