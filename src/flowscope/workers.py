"""Workers: threads that take whole blocks of rows instead of shares of every operation.

Torch divides each operation over its threads and waits for the last of them. A block goes through
some forty short operations, so it waits forty times, and as soon as another process holds a core
each wait lasts until that process is moved: reading 256 rows of 50,257 outcomes on two cores took
10 to 40 times as long beside busy neighbours. A worker runs the operations of its block alone, and
everybody waits once, at the end.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import TypeVar

import torch

__all__ = ["Workers", "one_thread"]

Item = TypeVar("Item")
Result = TypeVar("Result")


class Workers:
    """Some threads, each with one thread of torch; a single one is the caller's own."""

    def __init__(self, count: int):
        self.count = count
        self._pool = ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,))

    def each(self, work: Callable[[int, Item], Result], items: Sequence[Item]) -> list[Result]:
        """Results of `work(worker, item)` in the order of the items; worker counts from zero."""
        queue: SimpleQueue[tuple[int, Item]] = SimpleQueue()
        for numbered in enumerate(items):
            queue.put(numbered)
        results: dict[int, Result] = {}

        def drained(worker: int) -> None:
            try:
                while True:
                    place, item = queue.get_nowait()
                    results[place] = work(worker, item)
            except Empty:
                return

        self._run(drained)
        return [results[place] for place in range(len(items))]

    def _run(self, drained: Callable[[int], None]) -> None:
        if self.count == 1:
            drained(0)
            return
        threads = torch.get_num_threads()
        futures = [self._pool.submit(drained, worker) for worker in range(self.count)]
        wait(futures)  # for all, also if one has failed: nobody works on behind the caller's back
        # A worker's setting is its own, but torch also hands it to threads born later.
        torch.set_num_threads(threads)
        for future in futures:
            future.result()


@contextmanager
def one_thread() -> Iterator[None]:
    """Many small operations run alone, where threads of torch would mostly wait on each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
