"""P1 and P4 of an audit on a CUDA device; run by hand with ``pytest -m gpu``."""

import pytest
import torch
from numpy.testing import assert_allclose
from tests.instruments.audit.test_flow_stage import SMALL

import flowscope as fs
from flowscope.nets import bundled_path

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def test_an_audit_on_the_gpu_reads_what_it_reads_on_the_cpu(tmp_path):
    found = {}
    for device in ("cpu", "cuda"):
        loaded = fs.load(bundled_path(), device=device, dtype=torch.float32)
        audit = fs.audit(loaded, out=tmp_path / device, **SMALL)
        found[device] = {v.name: v.statistic for v in audit.verdicts}
    for name in ("P0", "P1", "P2", "P4"):
        on_cpu, on_gpu = (float(found[device][name].numbers()) for device in ("cpu", "cuda"))
        assert_allclose(on_gpu, on_cpu, rtol=0.02, atol=2e-3)
