"""Work that is done many times on the same memory: recorded once on a GPU, then replayed.

A step of a solver or of training is some hundred small kernels. Each takes the host longer to
launch than the device to run, so that the device waits. A CUDA graph launches all of them at once.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["Recording"]

_aten = torch.ops.aten
# Operations that wait for the device; a graph cannot hold them.
_WAITING = {
    _aten._local_scalar_dense.default,
    _aten.nonzero.default,
    _aten.equal.default,
    _aten._unique2.default,
    _aten.masked_select.default,
}
# These wait where a mask says which entries are meant.
_INDEXING = {_aten.index.Tensor, _aten.index_put.default, _aten.index_put_.default}


class Recording:
    """A function without arguments that reads and writes the same tensors at every call.

    On a CUDA device the first call runs as it is written, the second is recorded as a CUDA graph,
    and from then on the graph is replayed. Elsewhere, and where the first call was seen to wait for
    the device or the second cannot be recorded, every call runs as it is written.

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
        if self._tries and not self._called:
            # A recording that fails half-way leaves torch's allocator in doubt: look beforehand.
            with _Waits() as waits:
                self._work()
            self._tries = not waits.seen
        else:
            self._work()
        self._called = True


class _Waits(TorchDispatchMode):
    """Notices operations of this thread that wait for a device."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        leaves = func is _aten._to_copy.default and _other_device(args[0], kwargs.get("device"))
        chosen = func in _INDEXING and any(
            index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1]
        )
        self.seen = self.seen or leaves or chosen or func in _WAITING
        return func(*args, **kwargs)


def _other_device(x: torch.Tensor, wanted: Any) -> bool:
    """Whether a copy to a device, or to none in particular, leaves that of x."""
    if wanted is None:
        return False
    device = torch.device(wanted)
    return device.type != x.device.type or device.index not in (None, x.device.index)


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
