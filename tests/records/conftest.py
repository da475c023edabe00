import os

import pytest


@pytest.fixture(autouse=True, scope="module")
def quick_flush():
    """Flush nothing but check the handle: the disk would take most of the time of the suite.

    What a flush does to a disk that loses power no test in a process can see; that it is called,
    and in which order, is seen by ``test_files`` and by the faults.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield
