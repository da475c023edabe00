"""Names of ``import flowscope`` and the modules that define them; nothing is imported here."""

from flowscope.instruments import NAMES

__all__ = ["HOMES", "PACKAGES", "RESULTS", "exported_names"]

HOMES = {
    "Loaded": "flowscope.runs",
    "MixtureModel": "flowscope.runs",
    "Reproduction": "flowscope.lab.study",
    "Tap": "flowscope.tap",
    "couple": "flowscope.levers",
    "doctor": "flowscope.runs",
    "load": "flowscope.runs",
    "reproduce": "flowscope.lab.study",
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
RESULTS = {name.capitalize(): name for name in NAMES}
"""Class of the results of each instrument, by its name, with the name of the instrument."""


def exported_names() -> list[str]:
    """Every public name: functions and results of the instruments among them."""
    return sorted(["__version__", *HOMES, *PACKAGES, *RESULTS, *NAMES])
