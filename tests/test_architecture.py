"""The house is a test: arrows go down only, banned names stay out, nothing grows too large."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "flowscope"
FILES = sorted(SOURCE.rglob("*.py"))

# Each package may import the ones to its right; the mathematics only what stands before it.
MATHEMATICS = ["simplex", "transport", "markov", "flows", "field", "replica"]
BELOW = {name: {"errors", "workers", *MATHEMATICS[:i]} for i, name in enumerate(MATHEMATICS)}
BELOW["errors"] = BELOW["workers"] = set()
BELOW["records"] = {"errors", "workers", *MATHEMATICS}
BELOW["tap"] = BELOW["records"] | {"records"}
BELOW["nets"] = BELOW["tap"] | {"tap"}
BELOW["probes"] = BELOW["levers"] = BELOW["nets"] | {"nets"}
BELOW["evidence"] = BELOW["report"] = BELOW["records"] | {"records"}
BELOW["runs"] = BELOW["probes"] | {"probes", "levers", "evidence", "report"}
BELOW["cli"] = {"errors", "runs"}

# The mathematics does no I/O and knows no model, file, clock or logger.
WORLDLY = {
    "os",
    "pathlib",
    "io",
    "json",
    "time",
    "datetime",
    "logging",
    "transformers",
    "diffusers",
}
BANNED_FILES = {"utils", "util", "helpers", "common", "misc", "tools"}
BANNED_IMPORTS = {"pickle", "dill", "cloudpickle", "joblib", "shelve", "torchvision", "timm"}
LONGEST_FILE, LONGEST_BODY = 400, 60


def _package(file):
    parts = file.relative_to(SOURCE).with_suffix("").parts
    return "flowscope" if parts == ("__init__",) else parts[0]


def imported(tree):
    """Every module a tree imports, also inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module
            if node.module == "flowscope":
                yield from (f"flowscope.{alias.name}" for alias in node.names)


def broken_arrows(package, tree):
    """Imports of flowscope packages that do not lie below this one."""
    targets = {m.split(".")[1] for m in imported(tree) if m.startswith("flowscope.")}
    return sorted(t for t in targets - BELOW[package] - {package} if not t.startswith("__"))


def broken_bans(package, tree):
    """Forbidden imports, calls and names in a file."""
    roots = {m.split(".")[0] for m in imported(tree)}
    found = sorted(roots & BANNED_IMPORTS)
    if package in MATHEMATICS:
        found += sorted(roots & WORLDLY)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name == "torch.load" or (name == "print" and package != "cli"):
                found.append(name)
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            if node.name.startswith(("get_", "compute_")):
                found.append(node.name)
            if isinstance(node, ast.FunctionDef) and _body(node) > LONGEST_BODY:
                found.append(f"{node.name}: {_body(node)} lines")
    return found


def _body(node):
    start = node.body[1 if ast.get_docstring(node) and len(node.body) > 1 else 0]
    return node.end_lineno - start.lineno + 1


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SOURCE)))
def test_arrows_go_down_and_bans_hold(file):
    package, tree = _package(file), ast.parse(file.read_text())
    if package != "flowscope":  # the top level re-exports, lazily
        assert broken_arrows(package, tree) == []
    assert broken_bans(package, tree) == []
    assert file.stem not in BANNED_FILES
    assert len(file.read_text().splitlines()) <= LONGEST_FILE


@pytest.mark.parametrize(
    ("package", "code", "found"),
    [
        ("simplex", "import flowscope.tap", ["tap"]),
        ("simplex", "from flowscope import flows", ["flows"]),
        ("evidence", "def f():\n    from flowscope.tap import Tap", ["tap"]),
        ("cli", "from flowscope.tap import Tap", ["tap"]),
        ("flows", "from flowscope.simplex import entropy", []),
    ],
)
def test_a_turned_arrow_is_seen(package, code, found):
    assert broken_arrows(package, ast.parse(code)) == found


@pytest.mark.parametrize(
    ("package", "code", "found"),
    [
        ("simplex", "import time", ["time"]),
        ("tap", "import pickle", ["pickle"]),
        ("tap", "torch.load(x)", ["torch.load"]),
        ("tap", "print(1)", ["print"]),
        ("cli", "print(1)", []),
        ("tap", "def get_it(): pass", ["get_it"]),
        ("tap", "def f():\n" + "    x\n" * 61, ["f: 61 lines"]),
    ],
)
def test_a_broken_ban_is_seen(package, code, found):
    assert broken_bans(package, ast.parse(code)) == found


def test_every_package_has_its_place():
    packages = {_package(file) for file in FILES} - {"flowscope"}
    assert packages <= set(BELOW)


def test_every_public_package_lists_its_names():
    for file in FILES:
        if file.name == "__init__.py":
            names = [t.id for n in ast.parse(file.read_text()).body if isinstance(n, ast.Assign)
                     for t in n.targets if isinstance(t, ast.Name)]  # fmt: skip
            assert "__all__" in names, file


def test_tests_mirror_the_source():
    packages = {p.name for p in SOURCE.iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert packages <= {p.name for p in (ROOT / "tests").iterdir() if p.is_dir()}


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SOURCE)))
def test_shapes_of_numpy_arrays_are_not_evaluated(file):
    """From Python 3.12 and numpy 2.5 on, NDArray is an alias that jaxtyping cannot take."""
    text = file.read_text()
    shaped = re.search(r"\b(Float|Int|Bool|Shaped)\w*\[NDArray", text)
    assert shaped is None or "from __future__ import annotations" in text
