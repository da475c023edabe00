import os

import pytest
from tests.report.synthetic import write_run


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
