"""A CUDA device that is not there: tensors that say they are on it and are computed on the CPU.

Code sees what it would see on a GPU: the devices of tensors, refusals where devices or generators
are mixed, ``numpy()`` of a tensor that is elsewhere. What makes the host wait is counted by the
line of flowscope that asked. Not pretended: time, rounding, streams, what a compiler makes of a
kernel, and gradients (a network is trained on the CPU and its weights then placed).

A C++ compiler is needed for a device guard of thirty lines.
"""

import contextlib
import copy
import subprocess
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

__all__ = ["OnGpu", "bare", "lifted", "placed", "pretended_gpu"]

GPU = torch.device("cuda", 0)
aten = torch.ops.aten
_WAITS = {
    aten._local_scalar_dense.default,
    aten.nonzero.default,
    aten.masked_select.default,
    aten._unique2.default,
    aten.unique_dim.default,
    aten.equal.default,
}
_MIXED = {
    aten.copy_.default,
    aten._to_copy.default,
    aten.index.Tensor,
    aten.index_put.default,
    aten.index_put_.default,
    aten._local_scalar_dense.default,
}
_GUARD = """
#include <c10/core/impl/DeviceGuardImplInterface.h>
namespace c10::impl {
struct Quiet final : public DeviceGuardImplInterface {
  DeviceType type() const override { return DeviceType::CUDA; }
  Device exchangeDevice(Device) const override { return Device(DeviceType::CUDA, 0); }
  Device getDevice() const override { return Device(DeviceType::CUDA, 0); }
  void setDevice(Device) const override {}
  void uncheckedSetDevice(Device) const noexcept override {}
  Stream only() const { return Stream(Stream::DEFAULT, Device(DeviceType::CUDA, 0)); }
  Stream getStream(Device) const noexcept override { return only(); }
  Stream getNewStream(Device, int) const override { return only(); }
  Stream exchangeStream(Stream) const noexcept override { return only(); }
  DeviceIndex deviceCount() const noexcept override { return 1; }
};
C10_REGISTER_GUARD_IMPL(CUDA, Quiet);
}
"""


class OnGpu(Tensor):
    """A tensor of the pretended device; ``elem`` holds its numbers."""

    elem: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, elem: Tensor) -> "OnGpu":
        """A tensor with these numbers."""
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            elem.size(),
            strides=elem.stride(),
            storage_offset=elem.storage_offset(),
            dtype=elem.dtype,
            device=GPU,
            requires_grad=elem.requires_grad,
        )
        made.elem = elem.detach()
        return made

    def tolist(self) -> Any:
        """The numbers; the host waits."""
        _count(WAITED, "tolist")
        return self.elem.tolist()

    def numpy(self, *_: Any, **__: Any) -> Any:
        """Refuse, as torch does."""
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    __array__ = numpy

    def data_ptr(self) -> int:
        """Where the numbers are."""
        return self.elem.data_ptr()

    def __repr__(self, **_: Any) -> str:
        return f"OnGpu({self.elem!r})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


WAITED: Counter[tuple[str, str]] = Counter()


def bare(value: Any) -> Any:
    """The tensor of numbers behind a pretended one; anything else as it is."""
    return value.elem if isinstance(value, OnGpu) else value


def _count(counts: Counter[tuple[str, str]], what: str) -> None:
    for frame in reversed(traceback.extract_stack()):
        if "flowscope/" in frame.filename and "attack" not in frame.filename:
            place = frame.filename.split("flowscope/")[-1]
            counts[what, f"{place}:{frame.lineno}"] += 1
            return


def _is_gpu(device: Any) -> bool:
    return device is not None and torch.device(device).type == "cuda"


def _refuse(func: Any, args: Any, kwargs: Any, mine: list[Any], on_gpu: bool) -> None:
    """Raise what torch raises where devices are mixed."""
    leaves = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
    others = [t for t in leaves if not isinstance(t, OnGpu) and t.ndim > 0]
    if mine and others and func not in _MIXED:
        raise RuntimeError(f"Expected all tensors to be on the same device: {func}")
    indexed = func in (aten.index.Tensor, aten.index_put.default, aten.index_put_.default)
    if indexed and mine and not isinstance(args[0], OnGpu):
        raise RuntimeError(f"indices should be on the device of the indexed tensor: {func}")
    if indexed and len(args) > 2 and isinstance(args[0], OnGpu) and not isinstance(args[2], OnGpu):
        assert args[2].ndim == 0, f"values on another device: {func}"
    generators = [g for g in tree_leaves((args, kwargs)) if isinstance(g, torch.Generator)]
    if any(_is_gpu(g.device) != on_gpu for g in generators):
        raise RuntimeError(f"Expected a generator of the other device: {func}")


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    mine = [t for t in tree_leaves((args, kwargs)) if isinstance(t, OnGpu)]
    target = kwargs.get("device")
    on_gpu = bool(mine) if target is None else _is_gpu(target)
    _refuse(func, args, kwargs, mine, on_gpu)
    if mine and func in _WAITS:
        _count(WAITED, str(func))
    if func is aten._to_copy.default and mine and not on_gpu:
        _count(WAITED, "to the CPU")
    if func is aten._to_copy.default and on_gpu and not mine and not kwargs.get("non_blocking"):
        _count(WAITED, "from the CPU")
    if target is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    given, named = tree_map(bare, (args, kwargs))
    if func in (aten.mm.dtype, aten.mm.dtype_out, aten.addmm.dtype, aten.addmm.dtype_out):
        # Half-precision operands, float32 sums and result: a CPU has no such product.
        wide = [t.float() for t in given if isinstance(t, Tensor)]
        out = torch.mm(*wide) if len(wide) == 2 else torch.addmm(*wide)
        if "out" not in named:
            return OnGpu(out)
        named["out"].copy_(out)
        return kwargs["out"]
    found = func(*given, **named)
    if not on_gpu or func is aten._local_scalar_dense.default:
        return found
    known = {id(t.elem): t for t in mine}  # what an operation in place returns is what it was given

    def back(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return known[id(value)] if id(value) in known else OnGpu(value)

    return tree_map(back, found)


class _Made(TorchDispatchMode):
    """Sends what is made on the device there."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = {name: value for name, value in (kwargs or {}).items() if name != "pin_memory"}
        if _is_gpu(kwargs.get("device")) or any(
            isinstance(t, OnGpu) for t in tree_leaves((args, kwargs))
        ):
            return _run(func, args, kwargs)
        return func(*args, **kwargs)


class _Generator(torch.Generator):
    """A generator that says where it is."""

    def __new__(cls, device: Any = "cpu") -> "_Generator":
        made = super().__new__(cls, "cpu")
        made.place = torch.device(device)
        return made

    def __init__(self, device: Any = "cpu") -> None:
        pass

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """Where it is."""
        return self.place


def _from_data(own: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`torch.tensor` and its like, which make a CPU tensor and move it out of sight."""

    def make(data: Any, *args: Any, device: Any = None, **options: Any) -> Tensor:
        if isinstance(data, Tensor):
            moved = data if device is None else data.to(device)
            return moved.to(options["dtype"]) if options.get("dtype") else moved
        made = own(data, *args, **options)
        return OnGpu(made) if _is_gpu(device) else made

    return make


@contextlib.contextmanager
def pretended_gpu() -> Iterator[None]:
    """Have a CUDA device in this block."""
    _load_guard()
    device = {
        "_lazy_init": lambda: None,
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "device": lambda place: contextlib.nullcontext(),
        "synchronize": lambda place=None: None,
        "mem_get_info": lambda place=None: (2**30, 2**31),
        "memory_reserved": lambda place=None: 0,
        "memory_allocated": lambda place=None: 0,
        "get_device_properties": lambda place=None: SimpleNamespace(
            total_memory=2**33, name="pretended"
        ),
        "get_rng_state": lambda place=None: torch.zeros(1),
        "set_rng_state": lambda state, place=None: None,
        "manual_seed_all": lambda seed: None,
    }
    with contextlib.ExitStack() as stack:
        for name, value in device.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, value))
        stack.enter_context(mock.patch.object(torch, "Generator", _Generator))
        for name in ("tensor", "as_tensor"):
            stack.enter_context(mock.patch.object(torch, name, _from_data(getattr(torch, name))))
        stack.enter_context(_Made())
        yield


def placed(model: nn.Module) -> nn.Module:
    """A copy of a model on the pretended device; tied weights stay tied."""
    model, moved = copy.deepcopy(model), dict[int, nn.Parameter]()
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                if id(weight) not in moved:
                    moved[id(weight)] = nn.Parameter(OnGpu(weight.detach()), requires_grad=False)
                module._parameters[name] = moved[id(weight)]
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = OnGpu(buffer)
    return model


def lifted(value: Any) -> Any:
    """The same object with its tensors on the pretended device."""
    if isinstance(value, Tensor):
        return OnGpu(value.detach())
    if isinstance(value, (list, tuple)):
        return type(value)(map(lifted, value))
    if type(value).__module__.startswith("flowscope"):
        for name, part in list(vars(value).items()):
            object.__setattr__(value, name, lifted(part))
    return value


def _load_guard() -> None:
    """Compile and load the device guard, without which torch refuses tensors of the device."""
    home = Path(torch.__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "guard.cpp", Path(folder) / "guard.so"
        source.write_text(_GUARD)
        subprocess.run(
            ["g++", "-std=c++20", "-shared", "-fPIC", f"-I{home / 'include'}", str(source), "-o",
             str(library), f"-L{home / 'lib'}", "-lc10"],
            check=True,
        )  # fmt: skip
        torch.ops.load_library(str(library))
