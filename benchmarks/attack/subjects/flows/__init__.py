"""What the functions of ``flowscope.flows`` and its packages are given, one file for each."""

from benchmarks.attack.subjects.flows import (
    drift,
    entropy,
    hodge,
    potential,
    sampling,
    score,
    sphere,
    variation,
)

__all__ = ["EXCEPTIONS", "SUBJECTS"]

_FILES = (variation, drift, hodge, sampling, score, entropy, sphere, potential)
SUBJECTS = {name: subject for file in _FILES for name, subject in file.SUBJECTS.items()}
EXCEPTIONS = {name: reason for file in _FILES for name, reason in file.EXCEPTIONS.items()}
