"""The claims about the samplers of a diffusion model, in words."""

from flowscope.lab.claim import Claim

__all__ = ["GRADIENT", "ORDER", "PARITY"]

PARITY = Claim(
    name="I1",
    title="Parity",
    says="the ODE sampler and the SDE sampler give the same distribution of pixels",
    asks="Do the deterministic and the noisy sampler of a model give the same histogram of pixels "
    "at every time? The reference is the noisy sampler against itself with different noise.",
    unit="images",
)

ORDER = Claim(
    name="I2",
    title="First order",
    says="twice the steps halve the sampling error",
    asks="Does the sampling error fall in proportion to the number of steps (first order)?",
    unit="images",
)

GRADIENT = Claim(
    name="I3",
    title="Gradient",
    says="the learned score is a gradient",
    asks="Is the learned score the gradient of a log density, or does part of it rotate, which no "
    "density can explain? The reference is the same measurement on a field that is a gradient.",
    unit="images",
)
