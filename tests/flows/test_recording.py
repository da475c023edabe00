"""Recorded work does what the work does; on a CUDA device it is replayed (``pytest -m gpu``)."""

import pytest
import torch
from torch.testing import assert_close

from flowscope.flows import recording
from flowscope.flows.drift import Training, drift_sample, perceptron_drift
from flowscope.flows.recording import Recording
from flowscope.flows.sampling import smooth_path

ON_GPU = pytest.param(
    "cuda",
    marks=[
        pytest.mark.gpu,
        pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    ],
)


@pytest.mark.parametrize("device", ["cpu", ON_GPU])
def test_work_is_done_once_a_call(device):
    x, seen = torch.ones(3, device=device), []
    work = Recording(lambda: (x.mul_(2), seen.append(None)), x.device)
    for number in range(1, 6):
        work()
        assert (x == 2**number).all()
    assert work.replays == (device == "cuda")
    assert len(seen) == (2 if device == "cuda" else 5)


@pytest.mark.parametrize("device", ["cpu", ON_GPU])
def test_work_that_waits_for_the_device_runs_as_it_is_written(device):
    x, sums = torch.ones(3, device=device), []
    work = Recording(lambda: (sums.append(float(x.sum())), x.mul_(2)), x.device)
    for _ in range(4):
        work()
    assert not work.replays
    assert sums == [3.0, 6.0, 12.0, 24.0]
    assert (x == 16).all()


@pytest.mark.parametrize(
    "wait",
    [
        lambda x: float(x.sum()),
        lambda x: bool((x > 0).all()),
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        lambda x: torch.equal(x, x),
        lambda x: x.to("meta"),
        lambda x: torch.unique(x),
    ],
)
def test_waits_are_seen_before_anything_is_recorded(monkeypatch, wait):
    """Without a GPU: a device that says it is one, and a recording that must not be tried."""
    tried = []
    monkeypatch.setattr(recording, "_recorded", lambda work, device: tried.append(None))
    x = torch.ones(3)
    work = Recording(lambda: (wait(x), x.mul_(2)), torch.device("cuda"))
    for _ in range(3):
        work()
    assert (x == 8).all()
    assert not tried


def test_work_that_does_not_wait_is_recorded_at_the_second_call(monkeypatch):
    """Training and a solver's trial step among it: they are looked at and change nothing."""
    tried = []
    monkeypatch.setattr(recording, "_recorded", lambda work, device: tried.append(None))
    x = torch.ones(3, requires_grad=True)
    optimiser = torch.optim.SGD([x], lr=0.1, momentum=0.9)

    def step():
        (slope,) = torch.autograd.grad((x[torch.tensor([0, 2])] @ x[:2]).square().mean(), [x])
        x.grad = slope
        optimiser.step()
        torch.stack([slope.amax(), slope.amin()], out=numbers)

    numbers = torch.zeros(2)
    work = Recording(step, torch.device("cuda"))
    for _ in range(3):
        work()
    assert len(tried) == 1
    y = torch.ones(3, requires_grad=True)
    plain = torch.optim.SGD([y], lr=0.1, momentum=0.9)
    for _ in range(3):
        (y.grad,) = torch.autograd.grad((y[torch.tensor([0, 2])] @ y[:2]).square().mean(), [y])
        plain.step()
    assert torch.equal(x, y)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_recorded_path_is_the_path_on_the_gpu(dtype):
    generator = torch.Generator("cuda").manual_seed(0)
    x = torch.randn(500, 8, generator=generator, device="cuda", dtype=dtype)
    turn = torch.randn(8, 8, generator=generator, device="cuda", dtype=dtype)

    def velocity(t, x):
        return torch.tanh(x @ turn) * (1 + torch.as_tensor(t).cos().to(x))

    plain, recorded = (
        smooth_path(velocity, x, [0.0, 0.5, 2.0], rtol=1e-6, atol=1e-7, recorded=recorded)
        for recorded in (False, True)
    )
    assert (recorded.status, recorded.steps) == (plain.status, plain.steps)
    close = {"rtol": 1e-10, "atol": 1e-12} if dtype == torch.float64 else {}
    assert_close(recorded.states, plain.states, **close)


@pytest.mark.parametrize("spectral", [None, 4.0])
@pytest.mark.parametrize("device", ["cpu", ON_GPU])
def test_training_learns_the_same_field_with_a_last_batch_of_any_size(device, spectral):
    start = torch.linspace(-1, 1, 203)[:, None, None]
    paths = torch.cat([start, 0.2 * start], 1).to(device)
    times, prompts = torch.tensor([0.0, 1.0], device=device), torch.arange(203, device=device)
    network = perceptron_drift(
        drift_sample(paths, times, prompts),
        width=16,
        spectral=spectral,
        training=Training(epochs=25, batch=48),
        generator=torch.Generator().manual_seed(0),
    )
    y = torch.tensor([[-0.7], [0.1], [0.5]], device=device)
    assert_close(network(0.0, y), -0.8 * y, rtol=0.05, atol=0.03)
    assert min(network.errors) < 2e-3


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_recorded_training_is_the_training_on_the_gpu(monkeypatch):
    """Step by step the same kernels, so that not even the epochs differ."""
    generator = torch.Generator("cuda").manual_seed(0)
    paths = torch.randn(300, 3, 8, generator=generator, device="cuda").cumsum(1)
    times = torch.arange(3.0, device="cuda")
    sample = drift_sample(paths, times, torch.arange(300, device="cuda") // 5)
    errors = []
    for record in (recording._recorded, lambda work, device: None):
        monkeypatch.setattr(recording, "_recorded", record)
        drawn = torch.Generator().manual_seed(0)
        errors.append(perceptron_drift(sample, generator=drawn).errors)
    assert errors[0] == pytest.approx(errors[1], rel=1e-5)
