"""The claims that an audit judges, in words."""

from flowscope.lab.claim import Claim

__all__ = ["ADEQUACY", "CLAIMS", "CONTRACTION", "LOCKING", "ROTATION", "VARIATION"]

VARIATION = Claim(
    name="P0",
    title="Smoothness",
    says="the path of output distributions is of bounded relative variation on its segments",
    asks="Is the path through depth gentle enough to be read as a flow at all? Where it is "
    "not, every number that needs it is withheld.",
)

ADEQUACY = Claim(
    name="P1",
    title="Forecast",
    says="a continuous flow fitted on some prompts predicts the layers of others",
    asks="Does one smooth drift carry the distribution from layer to layer better than "
    "assuming that nothing moves?",
)

LOCKING = Claim(
    name="P2",
    title="Locking",
    says="the less mass outside the top outcome, the less a layer moves the distribution",
    asks="Once nearly all probability sits on one token, do later layers still move it?",
)

CONTRACTION = Claim(
    name="P3",
    title="Contraction",
    says="attention contracts distances between its rows",
    asks="Do two tokens’ attention rows lie nearer to each other than the tokens themselves?",
)

ROTATION = Claim(
    name="P4",
    title="Low rotation",
    says="the motion is transport rather than rotation",
    asks="Is the motion through depth transport, rather than turning that no potential explains?",
)

CLAIMS = (VARIATION, ADEQUACY, LOCKING, CONTRACTION, ROTATION)
"""In the order in which they are shown."""
