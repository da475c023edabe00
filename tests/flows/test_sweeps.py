"""The sweeps of Triton against the float64 reference.

They run on a CUDA device where there is one (``pytest -m gpu``), in Triton's interpreter where
``TRITON_INTERPRET=1`` is set and Triton is installed, and elsewhere in numpy (`numpy_triton`).
"""

import functools
import os
from itertools import pairwise

import pytest
import torch
from tests.flows.numpy_triton import LANGUAGE, Launched
from torch.testing import assert_close

from flowscope import flows
from flowscope.errors import InvalidInputError
from flowscope.flows import sweep_kernels
from flowscope.flows import swept as swept_module

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
COMPILED = torch.cuda.is_available() and not INTERPRETED
DEVICE = "cuda" if COMPILED else "cpu"
EVERY = slice(None)

pytestmark = [pytest.mark.gpu] if COMPILED else []


@pytest.fixture(autouse=True)
def _kernels_that_run_here(monkeypatch):
    if COMPILED or INTERPRETED:
        return
    monkeypatch.setattr(sweep_kernels, "tl", LANGUAGE)
    parts = ("_log1p", "_centred", "_exp", "_states", "_change", "_tail")
    for name in (*parts, "_first_sweep", "_second_sweep"):
        kernel = getattr(sweep_kernels, name)
        monkeypatch.setattr(sweep_kernels, name, getattr(kernel, "fn", kernel))
    for name in ("INSTALLED", "INTERPRETED"):
        monkeypatch.setattr(swept_module, name, True)
    monkeypatch.setattr(swept_module, "both_sweeps", Launched(sweep_kernels.both_sweeps))


def noise(seed: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(DEVICE)


def states(vocabulary: int) -> torch.Tensor:
    """Plain rows, four near a vertex, one with equal maxima, one uniform; far from mean zero."""
    z = 3 * noise(0, 12, vocabulary) - 40
    z[:4, 7] += torch.tensor([20.0, 45.0, 60.0, 80.0], device=DEVICE)
    z[4, [3, vocabulary - 1]] = z[4].max() + 2
    z[5] = -31.25
    return z


def path(vocabulary: int, size: float, dtype: torch.dtype, layers: int = 2) -> list[torch.Tensor]:
    z = [states(vocabulary).to(dtype)]
    for layer in range(layers):
        z.append((z[-1].double() + size * noise(layer + 1, *z[-1].shape)).to(dtype))
    return z


def compare(found, reference, rtol):
    for name, value in vars(reference).items():
        if name != "argmax":  # of equal maxima any may be named
            seen = vars(found)[name]
            said = functools.partial("{}: {}".format, name)
            assert_close(seen, value, rtol=rtol, atol=1e-30, msg=said)


def swept(z: list[torch.Tensor], dtype: torch.dtype = torch.float32) -> flows.DepthMeter:
    meter = flows.DepthMeter(*z[0].shape, dtype=dtype, device=DEVICE, mode="triton")
    assert meter.mode == "triton", meter.fallback
    return meter


def check(z: list[torch.Tensor], rtol: float = 1e-4) -> None:
    meter = swept(z, z[0].dtype)
    compare(meter.start(EVERY, z[0]), flows.state_statistics(z[0]), rtol)
    for before, after in pairwise(z):
        state, step = meter.advance(EVERY, after)
        compare(state, flows.state_statistics(after), rtol)
        compare(step, flows.step_statistics(before, after), rtol)


@pytest.mark.parametrize("vocabulary", [17, 1000, 2048, 5003])
@pytest.mark.parametrize("size", [5.0, 0.3, 1e-2, 1e-3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_statistics_are_those_of_the_reference(vocabulary, size, dtype):
    check(path(vocabulary, size, dtype))


@pytest.mark.parametrize("jump", [200.0, -200.0])
def test_a_jump_that_leaves_the_range_of_float32(jump):
    """All logits jump, or one outcome, or the largest come in the last block: one, or several."""
    z = [(3 * noise(5, 5, 5003)).float()]
    after = z[0] + 0.1 * noise(6, 5, 5003).float()
    after[0] += jump
    after[1, 4] += jump
    after[2, 5002] += abs(jump)
    after[3, 4100:4110] += abs(jump)  # their sum leaves the range, not the largest alone
    after[4, 4100:] += abs(jump)
    check([*z, after, z[0]])


def test_a_step_that_stands_still_is_exactly_zero():
    z = states(1000).float()
    meter = swept([z])
    meter.start(EVERY, z)
    _, step = meter.advance(EVERY, z.clone())
    for name, value in vars(step).items():
        assert (value == 0).all(), name


@pytest.mark.parametrize("tail", [50.0, 75.0])
def test_frobenius_norm_holds_where_squares_underflow(tail):
    z = torch.zeros(2, 5, device=DEVICE)
    z[:, 0] = tail
    found = swept([z]).start(EVERY, z).mobility_frobenius
    assert_close(found, flows.state_statistics(z).mobility_frobenius, rtol=1e-5, atol=0)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_logits_that_are_not_finite_are_refused(bad):
    z = states(1000).float()
    meter = swept([z])
    meter.record(EVERY, z)
    z[3, 500] = bad
    # On a device the row is met when the record is read, in Python at once.
    with pytest.raises(InvalidInputError, match=r"row 3 at state 1|at \(3, 500\)"):  # noqa: PT012
        meter.record(EVERY, z)
        meter.recorded()
    with pytest.raises(InvalidInputError, match=r"finite; found .* at \(3, 500\)"):
        meter.start(EVERY, z)


def test_what_is_recorded_in_place_is_what_advance_says():
    """Chunks in any order, logits written where the meter has room for them."""
    z = path(1000, 0.3, torch.float32, layers=3)
    meter, plain = swept(z), swept(z)
    for logits in z:
        for rows in (slice(5, 12), slice(0, 5)):
            meter.room(rows).copy_(logits[rows])
            meter.record(rows, meter.room(rows))
    states_found, steps_found = meter.recorded()
    plain.start(EVERY, z[0])
    # A GPU compiles one kernel for aligned rows, as the room has, and another for others.
    close = {"rtol": 1e-5 if COMPILED else 0.0, "atol": 1e-30 if COMPILED else 0.0}
    for layer, after in enumerate(z[1:]):
        state, step = plain.advance(EVERY, after)
        for name, value in vars(state).items():
            assert_close(vars(states_found)[name][:, layer + 1], value, **close)
        for name, value in vars(step).items():
            assert_close(vars(steps_found)[name][:, layer], value, **close)


@pytest.mark.parametrize("vocabulary", [17, 1000, 5003])
@pytest.mark.parametrize("size", [0.5, 1e-3])
def test_lent_step_is_the_step_to_the_state_it_makes(vocabulary, size):
    """Also where the state rises far above the first block of its row, and for small steps."""
    z = states(vocabulary).float()
    steps = (size * noise(3, 12, vocabulary)).float()
    if size > 0.1:
        steps[2, vocabulary - 1] += 300.0
    donors = torch.tensor([1, 2, 3, 2, 5, 6, 7, 8, 9, 10, 11, 0], device=DEVICE)
    passes = swept_module.SweptPasses(vocabulary, torch.float32, z.device)
    start, lent = (swept_module.raw_sums(z) for _ in range(2))
    passes.state(z, start)
    passes.lent_step(z, steps, donors, start, lent)
    after = (z + steps[donors]).double()
    compare(swept_module.state_sums(lent).statistics(), flows.state_statistics(after), 1e-4)
    found = swept_module.step_numbers(lent)
    exact = flows.step_statistics(z.double(), z.double() + steps[donors].double())
    for name in ("step_sq", "oscillation"):
        assert_close(vars(found)[name], vars(exact)[name], rtol=2e-6, atol=0)
    # The state is rounded to float32, a step that small beside it with it.
    rtol = 1e-4 if size > 0.1 else 2e-2
    assert_close(found.total_variation, exact.total_variation, rtol=rtol, atol=1e-12)
