"""The arrows: what records may import."""

import ast
import subprocess
import sys
from pathlib import Path

import flowscope.records

FOLDER = Path(flowscope.records.__file__).parent
ALLOWED = {"numpy", "pandas", "safetensors", "xarray", "flowscope"} | set(sys.stdlib_module_names)


def imported():
    for path in sorted(FOLDER.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from ((path.name, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield path.name, node.module


def test_records_import_only_what_they_may():
    wrong = []
    for file, module in imported():
        ours = module.split(".")[0] == "flowscope"
        if (
            module.split(".")[0] not in ALLOWED
            or module in ("pickle", "time")
            or (ours and not module.startswith(("flowscope.records", "flowscope.errors")))
        ):
            wrong.append((file, module))
    assert wrong == []


def test_importing_records_imports_no_torch():
    code = (
        "import sys, flowscope.records; sys.exit('torch' in sys.modules or 'xarray' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
