"""The claims that an audit judges, in words."""

from flowscope.lab.claim import Claim

__all__ = ["ADEQUACY", "CLAIMS", "CONTRACTION", "LOCKING", "ROTATION", "VARIATION"]

VARIATION = Claim(
    name="P0",
    title="Smoothness",
    says="the output changes in small steps from layer to layer, apart from jumps",
    asks="Does the output change smoothly enough through the layers to be described as a flow? "
    "Numbers that assume a flow are withheld for layers where it does not.",
)

ADEQUACY = Claim(
    name="P1",
    title="Forecast",
    says="a flow fitted on some prompts predicts the layers of other prompts",
    asks="Can a smooth rule, fitted on other prompts, predict the next layers better than "
    "assuming that nothing changes?",
)

LOCKING = Claim(
    name="P2",
    title="Locking",
    says="the more probability the top token has, the less a layer changes the output",
    asks="Once the top token has nearly all probability, do later layers still change the output?",
)

CONTRACTION = Claim(
    name="P3",
    title="Contraction",
    says="attention brings its points closer together",
    asks="Do two tokens attend to places that are closer together than the tokens themselves?",
)

ROTATION = Claim(
    name="P4",
    title="Low rotation",
    says="most of the motion through the layers is transport, not rotation",
    asks="Does the output move downhill on some potential, or does it rotate, which no potential "
    "can explain?",
)

CLAIMS = (VARIATION, ADEQUACY, LOCKING, CONTRACTION, ROTATION)
"""In the order in which they are shown."""
