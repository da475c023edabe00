"""Which machine a figure was measured on; kept beside every result."""

import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

import torch

__all__ = ["described"]


def described() -> dict[str, object]:
    """Hardware and library versions that a ratio may depend on."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return {
        "device": device,
        "processor": _processor(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": _version("transformers"),
        "flowscope": _version("flowscope"),
        "date": datetime.now(UTC).date().isoformat(),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "a source tree"


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(x.split(":", 1)[1].strip() for x in lines if x.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
