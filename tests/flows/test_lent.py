"""Transplanted steps by sweeps against float64; on a CUDA device or with ``TRITON_INTERPRET=1``."""

import os

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from flowscope.flows.lent import joined_steps, lent_steps
from flowscope.flows.swept import SweptPasses
from flowscope.probes import drawn_donors
from flowscope.simplex import transplanted_steps

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not (INTERPRETED or torch.cuda.is_available()), reason="needs a CUDA device"
    ),
]


@pytest.mark.parametrize("size", [3.0, 0.05])
def test_lent_steps_are_the_reference_for_every_step(size):
    generator = torch.Generator().manual_seed(0)
    z = [3 * torch.randn(9, 700, generator=generator)]
    z[0][0, 5], z[0][1, 6] = 25.0, 60.0  # nearly decided, and decided
    for _ in range(2):
        z.append(z[-1] + size * torch.randn(9, 700, generator=generator))
    z = [states.to(DEVICE) for states in z]
    passes = SweptPasses(700, torch.float32, z[0].device)
    found, expected = [], []
    for step in range(2):
        drawn = torch.from_numpy(drawn_donors(9, np.random.default_rng(step))).to(DEVICE)
        found.append(lent_steps(z[step], z[step + 1], drawn, passes))
        expected.append(transplanted_steps(z[step], z[step + 1], drawn))
    together = joined_steps(found)
    for step, reference in enumerate(expected):
        for name, value in vars(reference).items():
            assert_close(vars(together)[name][:, step], value, rtol=2e-4, atol=1e-30, msg=name)
