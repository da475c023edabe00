"""The claims about the attention heads, in words."""

from flowscope.lab.claim import Claim

__all__ = ["DIRECTED", "TRAINED"]

TRAINED = Claim(
    name="M1",
    title="Beyond random",
    says="attention is further from equilibrium than with random weights",
    asks="Does a random walk along attention have a direction, so that it differs from the same "
    "walk run backwards? The reference is the same network with random weights, whose nearly "
    "uniform attention has no direction.",
)

DIRECTED = Claim(
    name="M2",
    title="Beyond shuffled",
    says="attention is further from equilibrium than with shuffled keys",
    asks="Is that direction stronger than chance gives for attention of the same sharpness? The "
    "reference is the same attention with the keys shuffled.",
)
