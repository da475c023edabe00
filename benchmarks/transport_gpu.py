"""Entropic couplings on a CUDA device: a batch of small problems, and sweeps over point clouds.

Run by hand where there is one: ``python -m benchmarks.transport_gpu``; its output is kept in
``results/transport_gpu.txt``.
"""

import time

import torch

from flowscope import transport


def _timed(call):
    torch.cuda.synchronize()
    start = time.perf_counter()
    found = call()
    torch.cuda.synchronize()
    return found, time.perf_counter() - start


def batch(relative_epsilon: float) -> str:
    """64 problems of 128 by 128 points in 16 dimensions, to a marginal error of 1e-4."""
    g = torch.Generator("cuda").manual_seed(0)
    x, y = (torch.randn(64, 128, 16, generator=g, device="cuda") for _ in range(2))
    cost = 0.5 * torch.cdist(x, y).square()

    def solve():
        return transport.sinkhorn(cost, relative_epsilon=relative_epsilon, tolerance=1e-4)

    solve()
    found, took = _timed(solve)
    error = float(found.marginal_error.max())
    return (
        f"64 x 128 x 128, relative epsilon {relative_epsilon:g}: {1e3 * took:.1f} ms, "
        f"{int(found.iterations.max())} sweeps, error {error:.1e}"
    )


def cloud(points: int) -> str:
    """A coupling of two clouds in 16 dimensions, no matrix formed."""
    g = torch.Generator("cuda").manual_seed(0)
    x = torch.randn(points, 16, generator=g, device="cuda")
    y = torch.randn(points, 16, generator=g, device="cuda") + 0.5
    small = transport.PointCloud(x[:100], y[:100])
    transport.sinkhorn(small, relative_epsilon=0.5)
    torch.cuda.reset_peak_memory_stats()
    found, took = _timed(
        lambda: transport.sinkhorn(transport.PointCloud(x, y), relative_epsilon=0.1, anneal=False)
    )
    sweeps = int(found.iterations.max())
    peak = torch.cuda.max_memory_allocated() / 2**20
    return (
        f"{points:,} points: {took / sweeps:.3f} s a sweep (the median cost included), {sweeps} "
        f"sweeps, peak {peak:.0f} MB, error {float(found.marginal_error.max()):.1e}"
    )


def main() -> None:
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}")
    for epsilon in (0.1, 0.01):
        print(batch(epsilon))
    for points in (20_000, 100_000):
        print(cloud(points))


if __name__ == "__main__":
    main()
