"""flowscope: read any transformer or diffusion model as an entropic-transport flow.

>>> import flowscope as fs
>>> fs.simplex.mobility_trace([0.5, 0.25, 0.25])
tensor(0.6250, dtype=torch.float64)

Nothing is imported before it is asked for: torch and transformers take seconds, and
``flowscope --help`` needs neither. Types are in ``__init__.pyi``.
"""

import sys
from importlib import import_module
from typing import Any

from flowscope.lab.api.exports import HOMES, PACKAGES, exported_names, result_names
from flowscope.lab.registry import instrument, instrument_names

__version__ = "0.1.0"
__all__ = exported_names()


def __getattr__(name: str) -> Any:
    if name in PACKAGES:
        return import_module(f"flowscope.{name}")
    if name in HOMES:
        return getattr(import_module(HOMES[name]), name)
    if name in instrument_names():
        faces = import_module("flowscope.lab.api.faces")
        return faces.function_of(instrument(name))
    if name in result_names():
        declared = instrument(result_names()[name])
        return declared.resolve(declared.result)
    # With name and obj Python adds the nearest name to the message.
    message = f"module 'flowscope' has no attribute {name!r}"
    raise AttributeError(message, name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    return sorted(__all__)
