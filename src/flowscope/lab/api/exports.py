"""Names of ``import flowscope`` and the modules that define them; nothing is imported here."""

from flowscope.lab.registry import instrument_exports, instrument_names

__all__ = ["HOMES", "PACKAGES", "exported_names", "result_names"]

HOMES = {
    "Comparison": "flowscope.lab.display.compare",
    "Infiller": "flowscope.models.infilling.infiller",
    "Loaded": "flowscope.models.loading",
    "Reproduction": "flowscope.lab.study",
    "Result": "flowscope.lab.result",
    "Tap": "flowscope.tap",
    "compare": "flowscope.lab.display.compare",
    "consensus": "flowscope.levers",
    "couple": "flowscope.levers",
    "doctor": "flowscope.models.doctor",
    "infiller": "flowscope.models.infilling.loading",
    "load": "flowscope.models.loading",
    "open_run": "flowscope.lab.result",
    "reproduce": "flowscope.lab.study",
    **instrument_exports(),
}
PACKAGES = (
    "flows",
    "levers",
    "markov",
    "nets",
    "records",
    "replica",
    "simplex",
    "tap",
    "transport",
)


def result_names() -> dict[str, str]:
    """Name of each class of results, with the name of its instrument."""
    return {name.capitalize(): name for name in instrument_names()}


def exported_names() -> list[str]:
    """Every public name: functions and results of the instruments among them."""
    return sorted(["__version__", *HOMES, *PACKAGES, *result_names(), *instrument_names()])
