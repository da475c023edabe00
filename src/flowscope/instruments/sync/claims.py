"""The claims about coupled replicas, in words."""

from flowscope.lab.claim import Claim

__all__ = ["GAP", "ORDER"]

ORDER = Claim(
    name="R1",
    title="Coarse first",
    says="coarse structure commits before fine detail",
    asks="Is the rough layout of an image decided at an earlier step than its fine detail?",
    unit="pairs",
)

GAP = Claim(
    name="R2",
    title="Internal gap",
    says="without coupling, trailing modes keep more energy than leading ones",
    asks="Without any coupling, do the weak directions of difference inside the network keep "
    "more of their energy than the strong ones? Beside it: start and end of a pair "
    "exchanged at random.",
    unit="pairs",
)
