"""The names that packages export: no two things of one name, and none that nobody reads."""

import ast
import pkgutil
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import flowscope
from flowscope import evidence

SOURCE = Path(flowscope.__file__).parent
PACKAGES = [
    package.name
    for package in pkgutil.walk_packages([str(SOURCE)], prefix="flowscope.")
    if package.ispkg
]


def modules_in(package: ModuleType) -> set[str]:
    """Names of the submodules and subpackages of a package."""
    return {module.name for module in pkgutil.iter_modules(package.__path__)}


@pytest.mark.parametrize("name", sorted(PACKAGES))
def test_no_export_of_a_package_has_the_name_of_a_module_in_it(name):
    package = import_module(name)
    assert set(package.__all__) & modules_in(package) == set()


def test_the_root_exports_no_module_but_its_subpackages():
    for name in set(flowscope.__all__) & modules_in(flowscope):
        assert getattr(flowscope, name) is import_module(f"flowscope.{name}")


@pytest.mark.parametrize("name", ["drift", "hodge", "sampling", "score"])
def test_the_parts_of_flows_are_attributes_of_flows(name):
    assert getattr(flowscope.flows, name) is import_module(f"flowscope.flows.{name}")


def test_every_name_of_evidence_has_a_reader_outside_it():
    imported = {
        alias.name
        for path in SOURCE.rglob("*.py")
        if not path.is_relative_to(SOURCE / "evidence")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("flowscope.evidence")
        for alias in node.names
    }
    assert set(evidence.__all__) - imported == set()
