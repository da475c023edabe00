"""The claims about coupled replicas, in words."""

from flowscope.lab.claim import Claim

__all__ = ["GAP", "ORDER"]

ORDER = Claim(
    name="R1",
    title="Coarse first",
    says="coarse structure is decided before fine detail",
    asks="Is the rough layout of an image decided at an earlier step than its fine detail?",
    unit="pairs",
)

GAP = Claim(
    name="R2",
    title="Internal gap",
    says="without coupling, weak modes of difference retain more energy than strong ones",
    asks="Without any coupling, do the weak directions in which two generations differ retain more "
    "of their energy inside the network than the strong ones? The reference exchanges the start "
    "and the end of pairs at random.",
    unit="pairs",
)
