"""Small blocks with closed forms or known Jacobians, for the tests of this folder."""

import torch

from flowscope.replica import Propagator, ReplicaBlock, coupled_attention

TOKENS, WIDTH, HEADS = 5, 6, 2
SIZE = TOKENS * WIDTH
SCALE = 0.7


def split(x):
    return x.unflatten(-1, (HEADS, -1)).transpose(-3, -2)


def merge(x):
    return x.transpose(-3, -2).flatten(-2)


def norm(x):
    return torch.nn.functional.layer_norm(x, (WIDTH,))


def prenorm_block(seed=0, mask=None):
    """A pre-norm block with adaptive scale and shift, gates on both branches, and a wide MLP."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64) / WIDTH**0.5

    Wq, Wk, Wv, Wo = draw(4, WIDTH, WIDTH).unbind(0)
    up, down = draw(2 * WIDTH, WIDTH), draw(WIDTH, 2 * WIDTH)
    scale1, shift1, gate1, scale2, shift2, gate2 = (2 * draw(6, WIDTH)).unbind(0)

    def project(H):
        X = norm(H) * (1 + scale1) + shift1
        return split(X @ Wq.T), split(X @ Wk.T), split(X @ Wv.T)

    def finish(H, o):
        H = H + gate1 * (merge(o) @ Wo.T)
        X = norm(H) * (1 + scale2) + shift2
        return H + gate2 * (torch.tanh(X @ up.T) @ down.T)

    return ReplicaBlock(project, finish, SCALE, mask)


def matrix_block(M):
    """H ↦ M·vec(H), attention unused: its propagator is M for every g."""

    def project(H):
        return H[..., None, :, :] * 0, H[..., None, :, :] * 0, H[..., None, :, :] * 0

    def finish(H, o):
        return (H.flatten(-2) @ M.T).reshape(H.shape) + 0 * o.sum()

    return ReplicaBlock(project, finish, 1.0)


def state(seed=1, batch=()):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*batch, TOKENS, WIDTH, generator=generator, dtype=torch.float64)


def coupled_step(block, A, B, g):
    """Both replicas through the real block with the coupling at its attention."""
    q, k, v = block.project(torch.stack([A, B]))
    o = coupled_attention(q, k, v, g, scale=block.scale, mask=block.mask)
    return block.finish(torch.stack([A, B]), o)


def difference(block, H, h, g, step=1e-5):
    """Central difference of (A − B)/√2 for replicas H ± h/√2."""

    def image(t):
        A, B = H + t * h / 2**0.5, H - t * h / 2**0.5
        out = coupled_step(block, A, B, g)
        return (out[0] - out[1]) / 2**0.5

    return (image(step) - image(-step)) / (2 * step)


def random_matrix(seed=0, size=SIZE):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, size, generator=generator, dtype=torch.float64) / size**0.5


def orthonormal(count=4, seed=5):
    return torch.linalg.qr(random_matrix(seed))[0][:, :count].T.reshape(count, TOKENS, WIDTH)


def of_matrix(M, tokens=TOKENS, width=WIDTH):
    return Propagator(matrix_block(M), torch.zeros(tokens, width, dtype=torch.float64))


def dense(propagator, g):
    size = propagator.H0.numel()
    basis = torch.eye(size, dtype=torch.float64).reshape(size, *propagator.H0.shape)
    return propagator.apply(basis, g).reshape(size, size).T
