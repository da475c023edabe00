"""The lab: what an instrument is, and the engine that runs one into a run folder.

An instrument is data: a name, its settings, its stages and its claims. Everything here is loaded
when it is first asked for, so that ``flowscope --help`` starts without pandas or torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flowscope.lab.bench import Bench, Counter, Progress, Subject
    from flowscope.lab.claim import Abstention, Claim, Column, Missing, Table
    from flowscope.lab.config import Config
    from flowscope.lab.finding import Finding
    from flowscope.lab.instrument import Argument, Instrument, Stage
    from flowscope.lab.result import Result
    from flowscope.lab.study import Reproduction, Study
    from flowscope.lab.view import Records

_HOMES = {
    "Abstention": "claim",
    "Argument": "instrument",
    "Bench": "bench",
    "Claim": "claim",
    "Column": "claim",
    "Config": "config",
    "Counter": "bench",
    "Finding": "finding",
    "Instrument": "instrument",
    "Missing": "claim",
    "Progress": "bench",
    "Records": "view",
    "Reproduction": "study",
    "Result": "result",
    "Stage": "instrument",
    "Study": "study",
    "Subject": "bench",
    "Table": "claim",
}
__all__ = [
    "Abstention",
    "Argument",
    "Bench",
    "Claim",
    "Column",
    "Config",
    "Counter",
    "Finding",
    "Instrument",
    "Missing",
    "Progress",
    "Records",
    "Reproduction",
    "Result",
    "Stage",
    "Study",
    "Subject",
    "Table",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"flowscope.lab.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'flowscope.lab' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
