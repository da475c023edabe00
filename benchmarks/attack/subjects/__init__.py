"""The table of public functions that are tried on hostile numbers, one file for each package."""

from benchmarks.attack.subjects import flows, markov, pde, replica, simplex, transport

__all__ = ["EXCEPTIONS", "SUBJECTS"]

_PACKAGES = {
    "simplex": simplex,
    "transport": transport,
    "markov": markov,
    "flows": flows,
    "pde": pde,
    "replica": replica,
}
SUBJECTS = {
    f"{package}.{name}": subject
    for package, module in _PACKAGES.items()
    for name, subject in module.SUBJECTS.items()
}
EXCEPTIONS = {
    f"{package}.{name}": reason
    for package, module in _PACKAGES.items()
    for name, reason in module.EXCEPTIONS.items()
}
