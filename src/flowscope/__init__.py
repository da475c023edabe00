"""flowscope: read any transformer or diffusion model as an entropic-transport flow.

>>> import flowscope as fs
>>> fs.simplex.mobility_trace([0.5, 0.25, 0.25])
tensor(0.6250, dtype=torch.float64)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flowscope import flows, levers, markov, nets, records, replica, simplex, tap, transport
    from flowscope.levers import couple
    from flowscope.runs import (
        Audit,
        Heads,
        Image,
        Loaded,
        MixtureModel,
        Reproduction,
        Sync,
        audit,
        doctor,
        heads,
        image,
        load,
        reproduce,
        sync,
    )
    from flowscope.tap import Tap

__version__ = "0.1.0"
__all__ = [
    "Audit",
    "Heads",
    "Image",
    "Loaded",
    "MixtureModel",
    "Reproduction",
    "Sync",
    "Tap",
    "__version__",
    "audit",
    "couple",
    "doctor",
    "flows",
    "heads",
    "image",
    "levers",
    "load",
    "markov",
    "nets",
    "records",
    "replica",
    "reproduce",
    "simplex",
    "sync",
    "tap",
    "transport",
]

# Torch and transformers take seconds to import, and `flowscope --help` needs neither.
_RUNS = (
    "Audit",
    "Heads",
    "Image",
    "Loaded",
    "MixtureModel",
    "Reproduction",
    "Sync",
    "audit",
    "doctor",
    "heads",
    "image",
    "load",
    "reproduce",
    "sync",
)
_HOME = {"Tap": "tap", "couple": "levers"} | dict.fromkeys(_RUNS, "runs")
_PACKAGES = {
    "flows",
    "levers",
    "markov",
    "nets",
    "records",
    "replica",
    "simplex",
    "tap",
    "transport",
}


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"flowscope.{name}")
    if name in _HOME:
        return getattr(import_module(f"flowscope.{_HOME[name]}"), name)
    raise AttributeError(f"module 'flowscope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
