"""What the tests of all instruments share."""

import os
import shutil

import pytest
from tests.instruments.audit.synthetic import write_run
from tests.instruments.tiny import tiny_runs

from flowscope.lab.result import open_run


@pytest.fixture(autouse=True, scope="module")
def quick_flush():
    """Do not wait for the disk: what a flush does is tested with the records."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory):
    """Small run of the instrument of a name, made once; tests only read it."""
    return tiny_runs(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def copied(tiny_run, tmp_path):
    """Result in a copy of the small run of an instrument, which a test may change."""

    def copy(name):
        return open_run(shutil.copytree(tiny_run(name).folder, tmp_path / name))

    return copy


@pytest.fixture(scope="module")
def run(tmp_path_factory, quick_flush):
    """Run with every table and with hostile text."""
    return write_run(tmp_path_factory.mktemp("report") / "run")


@pytest.fixture(scope="session")
def audit(tiny_run):
    """A small audit of the bundled model."""
    return tiny_run("audit").result


@pytest.fixture(scope="session")
def heads(tiny_run):
    """A small reading of the heads of the bundled model."""
    return tiny_run("heads").result
