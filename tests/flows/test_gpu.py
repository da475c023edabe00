"""The depth meter on a CUDA device; run by hand with ``pytest -m gpu``."""

from itertools import pairwise

import pytest
import torch
from torch.testing import assert_close

from flowscope import flows

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_statistics_on_the_gpu_are_those_of_the_reference(mode, dtype):
    generator = torch.Generator("cuda").manual_seed(0)
    z = 3 * torch.randn(3, 40, 50_257, generator=generator, device="cuda") - 40
    z[:, :4, 7] += torch.tensor([20.0, 45.0, 60.0, 80.0], device="cuda")
    z[:, 4, [3, 9]] = z[:, 4].amax(-1, keepdim=True) + 2
    z = z.to(dtype)
    meter = flows.DepthMeter(40, 50_257, dtype=dtype, device="cuda", mode=mode)
    assert meter.mode == mode, meter.fallback
    meter.start(slice(None), z[0])
    for before, after in pairwise(z):
        state, step = meter.advance(slice(None), after)
        for found, exact in [
            (state, flows.state_statistics(after)),
            (step, flows.step_statistics(before, after)),
        ]:
            for name, value in vars(exact).items():
                assert vars(found)[name].is_cuda
                if name != "argmax":  # of equal maxima any may be named
                    assert_close(vars(found)[name], value, rtol=1e-4, atol=1e-30)
