"""The claims about the attention heads, in words."""

from flowscope.lab.claim import Claim

__all__ = ["DIRECTED", "TRAINED"]

TRAINED = Claim(
    name="M1",
    title="Beyond random",
    says="heads are further from equilibrium than with random weights",
    asks="Does a walk that follows attention from token to token go round, so that it could be"
    " told from the same walk run backwards? Beside it: the same network before training,"
    " which looks nearly everywhere alike and so goes nowhere.",
)

DIRECTED = Claim(
    name="M2",
    title="Beyond shuffled",
    says="heads are further from equilibrium than rows as peaked that do not agree",
    asks="Does it go round more than a walk whose steps are as decided but unrelated? Beside "
    "it: the same rows with the keys permuted.",
)
