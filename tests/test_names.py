"""The names of the packages: what each one exports, and who reads it."""

import ast
from pathlib import Path

import flowscope
from flowscope import evidence

SOURCE = Path(flowscope.__file__).parent


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
