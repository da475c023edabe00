"""What the tests of all instruments share."""

import os

import pytest
from tests.instruments.audit.synthetic import write_run
from tests.instruments.prompts import TEXTS


@pytest.fixture(autouse=True, scope="module")
def quick_flush():
    """Do not wait for the disk: what a flush does is tested with the records."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory, quick_flush):
    """Run with every table and with hostile text."""
    return write_run(tmp_path_factory.mktemp("report") / "run")


@pytest.fixture(scope="module")
def audit(tmp_path_factory):
    """A small audit of the bundled model, one for each file: some tests write to its folder."""
    import flowscope as fs

    out = tmp_path_factory.mktemp("audit") / "run"
    return fs.audit(texts=TEXTS, out=out, resamples=20, batch=2, control_prompts=2)
