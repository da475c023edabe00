"""The house is a test: arrows go down only, banned names stay out, nothing grows too large."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flowscope.lab import registry

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "flowscope"
FILES = sorted(SOURCE.rglob("*.py"))

# Each package may import the ones to its right; the mathematics only what stands before it.
MATHEMATICS = ["simplex", "transport", "markov", "flows", "pde", "replica"]
BELOW = {name: {"errors", "workers", *MATHEMATICS[:i]} for i, name in enumerate(MATHEMATICS)}
BELOW["errors"] = BELOW["workers"] = set()
BELOW["records"] = {"errors", "workers", *MATHEMATICS}
BELOW["tap"] = BELOW["records"] | {"records"}
BELOW["nets"] = BELOW["tap"] | {"tap"}
BELOW["probes"] = BELOW["levers"] = BELOW["nets"] | {"nets"}
BELOW["evidence"] = BELOW["report"] = BELOW["records"] | {"records"}
BELOW["lab"] = {"errors", "records", "evidence", "report"}
BELOW["models"] = BELOW["probes"] | {"probes", "levers", "lab"}
BELOW["instruments"] = BELOW["models"] | {"models", "evidence", "report"}
BELOW["cli"] = {"errors", "lab", "models", "nets", "records", "report"}

PRODUCT = [
    "records", "tap", "nets", "levers", "models", "probes", "evidence", "lab", "report",
    "instruments", "cli",
]  # fmt: skip
MOST_FILES = 15
NAMELESS = ["lab", "report", "cli", "evidence", "records"]
INSTRUMENTS = set(registry.instrument_names())
# What an instrument loads to be listed, configured, worded and drawn: no torch, no mathematics.
LIGHT = {
    "__init__", "claims", "columns", "config", "figures", "findings", "headline", "keys",
    "listings", "names", "page", "result", "schemas", "sections", "statements",
    "axes", "curves", "doublings", "maps", "series", "strip", "strips",  # what figures are made of
}  # fmt: skip
LIGHT_FOLDERS = {"figures"}
LIGHT_ENDINGS = ("_figure", "_figures")
JUDGING = {"judge", "rule", "rules"}

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
    return "flowscope" if parts in {("__init__",), ("__main__",)} else parts[0]


def _runtime(tree):
    """Nodes that run: blocks under TYPE_CHECKING are left out."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        yield node
        yield from _runtime(node)


def _modules(nodes):
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module
            if node.module == "flowscope" or node.module in _PACKAGES:
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


_PACKAGES = {
    ".".join(file.parent.relative_to(SOURCE.parent).parts)
    for file in FILES
    if file.name == "__init__.py"
}


def imported(tree):
    """Every module a tree imports, also inside functions."""
    yield from _modules(ast.walk(tree))


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


def other_instruments(name, tree):
    """Instruments other than the one of this file that it imports."""
    named = {m.split(".")[2] for m in imported(tree) if m.startswith("flowscope.instruments.")}
    return sorted((named & INSTRUMENTS) - {name})


def instrument_names(tree):
    """Imports of instruments, and strings equal to the name of one."""
    found = [m for m in imported(tree) if m.startswith("flowscope.instruments.")]
    strings = (n.value for n in ast.walk(tree) if isinstance(n, ast.Constant))
    return found + [s for s in strings if isinstance(s, str) and s in INSTRUMENTS]


def heavy_imports(tree, allowed):
    """Packages that a file loads when it is imported, beyond the allowed ones."""
    loaded = set()
    for module in _modules(_runtime(tree)):
        root, *rest = module.split(".")
        if root in ("torch", "transformers", "diffusers"):
            loaded.add(root)
        if root == "flowscope" and rest and rest[0] not in allowed:
            loaded.add(rest[0])
    return sorted(loaded)


def _is_light(file):
    by_name = file.stem in LIGHT or file.stem.endswith(LIGHT_ENDINGS)
    return by_name or LIGHT_FOLDERS & set(file.relative_to(SOURCE).parts)


def _judges(file):
    return file.stem in JUDGING or file.stem.endswith("_rule")


OF_INSTRUMENTS = [file for file in FILES if _package(file) == "instruments"]


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
        ("lab", "from flowscope.models.loading import load", ["models"]),
        ("report", "from flowscope.lab import Result", ["lab"]),
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


@pytest.mark.parametrize("file", OF_INSTRUMENTS, ids=lambda f: str(f.relative_to(SOURCE)))
def test_instruments_do_not_import_each_other(file):
    parts = file.relative_to(SOURCE).parts
    assert other_instruments(parts[1], ast.parse(file.read_text())) == []


def test_import_of_another_instrument_is_seen():
    code = "from flowscope.instruments.heads.geometry.tables import geometry_table"
    assert other_instruments("audit", ast.parse(code)) == ["heads"]
    assert other_instruments("heads", ast.parse(code)) == []


@pytest.mark.parametrize(
    "file", [f for f in FILES if _package(f) in NAMELESS], ids=lambda f: str(f.relative_to(SOURCE))
)
def test_kit_holds_no_name_of_an_instrument(file):
    assert instrument_names(ast.parse(file.read_text())) == []


def test_name_of_an_instrument_is_seen():
    assert instrument_names(ast.parse("x = {'audit': 1}")) == ["audit"]
    assert instrument_names(ast.parse("import flowscope.instruments.heads")) != []
    assert instrument_names(ast.parse("'an audit of depth'")) == []


@pytest.mark.parametrize(
    "file", [f for f in OF_INSTRUMENTS if _is_light(f)], ids=lambda f: str(f.relative_to(SOURCE))
)
def test_listing_wording_and_drawing_load_no_model(file):
    allowed = {"errors", "lab", "records", "report", "evidence", "instruments"}
    tree = ast.parse(file.read_text())
    assert heavy_imports(tree, allowed) == []
    for module in _modules(_runtime(tree)):
        path = SOURCE.joinpath(*module.split(".")[1:]).with_suffix(".py")
        if module.startswith("flowscope.instruments.") and path.exists():
            assert heavy_imports(ast.parse(path.read_text()), allowed) == [], module


@pytest.mark.parametrize(
    "file",
    [f for f in OF_INSTRUMENTS if _judges(f)],
    ids=lambda f: str(f.relative_to(SOURCE)),
)
def test_judges_see_records_evidence_and_mathematics(file):
    allowed = {"errors", "lab", "records", "evidence", "instruments", *MATHEMATICS}
    assert heavy_imports(ast.parse(file.read_text()), allowed) == []


def test_heavy_import_is_seen():
    code = "import torch\nfrom flowscope.flows import x\nif TYPE_CHECKING:\n    import transformers"
    assert heavy_imports(ast.parse(code), {"lab"}) == ["flows", "torch"]


def test_declarations_judges_pages_and_words_load_no_torch():
    modules = [
        ".".join(file.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
        for file in OF_INSTRUMENTS
        if _is_light(file) or _judges(file)
    ]
    code = f"""
import sys
from importlib import import_module
for name in {modules!r}:
    import_module(name)
    heavy = [m for m in ("torch", "transformers", "diffusers") if m in sys.modules]
    assert not heavy, (name, heavy)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", sorted(INSTRUMENTS))
def test_importing_one_instrument_loads_no_file_of_another(name):
    code = f"""
import sys
from importlib import import_module
import_module("flowscope.instruments.{name}")
others = {sorted(INSTRUMENTS - {name})!r}
print([m for m in sys.modules for o in others if m.startswith("flowscope.instruments." + o)])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", sorted(INSTRUMENTS))
def test_every_reference_resolves(name):
    one = registry.instrument(name)
    for reference in (
        one.prepare, one.result, one.page, one.headline, one.findings, one.compare,
    ):  # fmt: skip
        assert not reference or one.resolve(reference) is not None
    studies = [one.study(reference) for reference in one.studies]
    for study in studies:
        assert callable(study.resolve(study.statements))
        assert study.file.is_file()
    for stage in (*one.stages, *(stage for study in studies for stage in study.stages)):
        assert callable(stage.resolve(stage.measure))
        assert not stage.judge or callable(stage.resolve(stage.judge))
        assert not stage.probes or callable(stage.resolve(stage.probes))
        assert stage.claims or not stage.judge
        known = {*one.config.model_fields, *(n for s in studies for n in s.config.model_fields)}
        assert set(stage.settings) <= known


def test_one_loop_runs_tapped_models_and_one_helper_keeps_shards():
    def users(pattern, *packages):
        files = (path.relative_to(SOURCE) for path in SOURCE.rglob("*.py"))
        outside = (file for file in files if file.parts[0] not in packages)
        return {str(f) for f in outside if re.search(pattern, (SOURCE / f).read_text("utf-8"))}

    taps = users(r"\bTap\(", "tap", "probes", "levers")
    assert taps == {"models/doctor.py", "instruments/sync/internal_gap/mode_reading.py"}
    assert users(r"\b(find_shard|write_shard|read_shard|shard_done)\(", "records") == set()


@pytest.mark.parametrize("package", PRODUCT)
def test_folders_of_the_product_stay_small(package):
    folders = [SOURCE / package, *(p for p in (SOURCE / package).rglob("*") if p.is_dir())]
    counts = {str(f.relative_to(SOURCE)): len(list(f.glob("*.py"))) for f in folders}
    assert {name: n for name, n in counts.items() if n > MOST_FILES} == {}


def _stages(one):
    studies = (one.study(reference) for reference in one.studies)
    return (*one.stages, *(stage for study in studies for stage in study.stages))


@pytest.mark.parametrize("name", sorted(INSTRUMENTS))
def test_a_diagnostic_has_its_folder(name):
    """A stage is declared beside the file that measures it and the file that judges it."""
    for stage in _stages(registry.instrument(name)):
        folder = SOURCE.joinpath(*stage.home.split(".")[1:])
        for reference in filter(None, (stage.measure, stage.judge, stage.probes)):
            module = reference.rpartition(".")[0]
            assert (folder / f"{module}.py").is_file(), (stage.name, reference)
        assert not stage.judge or stage.judge.startswith("judge."), stage.name


@pytest.mark.parametrize(
    ("verdict", "most"), [(c.name, 5) for one in registry.instruments() for c in one.claims]
)
def test_a_verdict_is_named_in_few_files(verdict, most):
    """Its words are written once: in the claim, and where the sources use its name."""
    naming = [f for f in FILES if re.search(rf"\b{verdict}\b", f.read_text())]
    assert len(naming) <= most, [str(f.relative_to(SOURCE)) for f in naming]


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
    assert {p.name for p in (ROOT / "tests" / "instruments").iterdir()} >= INSTRUMENTS


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SOURCE)))
def test_shapes_of_numpy_arrays_are_not_evaluated(file):
    """From Python 3.12 and numpy 2.5 on, NDArray is an alias that jaxtyping cannot take."""
    text = file.read_text()
    shaped = re.search(r"\b(Float|Int|Bool|Shaped)\w*\[NDArray", text)
    assert shaped is None or "from __future__ import annotations" in text
