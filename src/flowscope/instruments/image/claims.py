"""The claims about the samplers of a diffusion model, in words."""

from flowscope.lab.claim import Claim

__all__ = ["GRADIENT", "ORDER", "PARITY"]

PARITY = Claim(
    name="I1",
    title="Parity",
    says="the probability flow and the SDE share their marginals",
    asks="Do the deterministic and the noisy sampler of one model give the same histogram of "
    "pixels at every time? Beside it: the noisy sampler against itself with other noise.",
    unit="images",
)

ORDER = Claim(
    name="I2",
    title="First order",
    says="the sampling error falls at first order",
    asks="Does twice the number of steps halve what the steps get wrong?",
    unit="images",
)

GRADIENT = Claim(
    name="I3",
    title="Gradient",
    says="the learned score is a gradient",
    asks="Does the learned score push along a potential, or does part of it turn, which no "
    "density explains? Beside it: the same reading of a field that is a gradient.",
    unit="images",
)
