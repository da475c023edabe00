"""What the tests of the lab share: flowscope with one more instrument."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import flowscope

collect_ignore = ["toy_instrument"]  # imported as flowscope.instruments.toy alone
TOY = Path(__file__).parent / "toy_instrument"
SOURCE = Path(flowscope.__file__).parent


def _linked(source, target, *, without):
    """Folder with links to everything in another one."""
    target.mkdir()
    for entry in source.iterdir():
        if entry.name not in (without, "__pycache__"):
            (target / entry.name).symlink_to(entry)


@pytest.fixture(scope="session")
def flowscope_with_toy(tmp_path_factory):
    """Function that runs Python in a flowscope that has the toy: its folder and one line more."""
    home = tmp_path_factory.mktemp("installed")
    _linked(SOURCE, home / "flowscope", without="instruments")
    instruments = home / "flowscope" / "instruments"
    _linked(SOURCE / "instruments", instruments, without="__init__.py")
    (instruments / "toy").symlink_to(TOY)
    text = (SOURCE / "instruments" / "__init__.py").read_text(encoding="utf-8")
    added = re.sub(r"^(NAMES = \(.*)\)$", r'\1, "toy")', text, flags=re.M)
    changed = [pair for pair in zip(text.splitlines(), added.splitlines(), strict=True)
               if pair[0] != pair[1]]  # fmt: skip
    assert len(changed) == 1
    (instruments / "__init__.py").write_text(added, encoding="utf-8")

    def python(*arguments, folder=home):
        environment = {**os.environ, "PYTHONPATH": str(home), "COLUMNS": "80"}
        return subprocess.run(
            [sys.executable, *map(str, arguments)],
            capture_output=True,
            text=True,
            cwd=folder,
            env=environment,
            check=False,
        )

    return python
