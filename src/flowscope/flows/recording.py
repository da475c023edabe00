"""Work that is done many times on the same memory: recorded once on a GPU, then replayed.

A step of a solver or of training is some hundred small kernels. Each takes the host longer to
launch than the device to run, so that the device waits. A CUDA graph launches all of them at once.
"""

from collections.abc import Callable

import torch

__all__ = ["Recording"]


class Recording:
    """A function without arguments that reads and writes the same tensors at every call.

    On a CUDA device the first call runs as it is written, the second is recorded as a CUDA graph,
    and from then on the graph is replayed. Elsewhere, and where the function cannot be recorded
    because it waits for the device, every call runs as it is written.

    Parameters
    ----------
    work : the function. It does tensor operations alone, the same at every call: what Python does
        beside them happens in the first two calls only. Its results are written into tensors that
        it finds, for instance by ``copy_``. Values that it keeps for later calls must be there
        after the first.
    device : where its tensors are.

    Attributes
    ----------
    replays
        Whether calls replay a graph by now.

    Examples
    --------
    >>> x = torch.ones(2)
    >>> doubled = Recording(lambda: x.mul_(2), x.device)
    >>> for _ in range(3):
    ...     doubled()
    >>> x
    tensor([8., 8.])
    """

    def __init__(self, work: Callable[[], object], device: torch.device) -> None:
        self._work, self._device = work, device
        self._graph: torch.cuda.CUDAGraph | None = None
        self._tries = device.type == "cuda"
        self._called = False

    @property
    def replays(self) -> bool:
        """Whether calls replay a graph by now."""
        return self._graph is not None

    def __call__(self) -> None:
        """Do the work once."""
        if self._called and self._tries:
            self._tries = False
            self._graph = _recorded(self._work, self._device)
        if self._graph is not None:
            self._graph.replay()
            return
        self._called = True
        self._work()


def _recorded(work: Callable[[], object], device: torch.device) -> torch.cuda.CUDAGraph | None:
    """Graph of the work, which is not done by this; None where it cannot be recorded."""
    try:
        with torch.cuda.device(device):
            graph, here = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
            beside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            beside.wait_stream(here)
            # torch.cuda.graph would also give unused memory back, which takes longer than the work
            with torch.cuda.stream(beside):
                graph.capture_begin(capture_error_mode="thread_local")
                try:
                    work()
                finally:
                    graph.capture_end()
            here.wait_stream(beside)
    except Exception:  # what waits for the device raises in many ways
        return None
    return graph
