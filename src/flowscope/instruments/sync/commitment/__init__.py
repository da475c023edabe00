"""The step at which coarse structure and fine detail of an image are decided."""

from flowscope.instruments.sync.columns import (
    BECAUSE,
    CLASS,
    CONTROL,
    LABEL,
    MEASURE,
    PAIRS,
    STATUS,
    G,
)
from flowscope.lab.claim import ENDS, INTERVAL, Claim, Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["ORDER", "STAGE", "TABLES"]


ORDER = Claim(
    name="R1",
    title="Coarse first",
    says="coarse structure is decided earlier before fine detail than the covariance of the images "
    "makes it",
    asks="Is the rough layout of an image decided before its fine detail by more steps than in "
    "Gaussian images with the same covariance? Large scales vary more than small ones in nearly "
    "all images, which alone makes them rise from the noise first.",
    unit="pairs",
)


JOINT = {
    "{}_low": "lower end of the interval of `{}`; 95 % for all couplings and classes together",
    "{}_high": "upper end of the interval of `{}`; 95 % for all couplings and classes together",
}
"""Columns beside one that is measured at every coupling: ends that hold for all of them."""


TABLES = {
    "agreement": Table(
        purpose="how similar the replicas are, by the step at which coupling ended",
        keys=("label", "g", "control", "measure", "step"),
        columns=(
            LABEL,
            CLASS,
            G,
            CONTROL,
            MEASURE,
            Column("step", "reverse step at which the coupling ended"),
            Column(
                "value",
                "how alike the images are, median over pairs: cosine of features, or one less the "
                "distance at that scale over that of independent images",
                beside=ENDS,
            ),
            PAIRS,
            Column("fit", "sigmoid fitted to the medians; empty without a transition"),
        ),
    ),
    "commitment": Table(
        purpose="the step at which each kind of agreement sets in",
        keys=("label", "g", "control", "measure"),
        columns=(
            LABEL,
            CLASS,
            G,
            CONTROL,
            MEASURE,
            Column("midpoint", "midpoint of the sigmoid fitted to the agreement", "step", ENDS),
            Column(
                "amplitude",
                "agreement in the last quarter of the steps less that in the first",
                beside=INTERVAL,
            ),
            Column("width", "width of the sigmoid", "step"),
            PAIRS,
            STATUS,
            BECAUSE,
        ),
    ),
    "commitment_gap": Table(
        purpose="how many steps fine detail commits after coarse structure",
        keys=("label", "g", "control"),
        columns=(
            LABEL,
            CLASS,
            G,
            CONTROL,
            Column("gap", "midpoint of fine less midpoint of coarse agreement", "step", ENDS),
            PAIRS,
            STATUS,
            BECAUSE,
        ),
    ),
    "commitment_order": Table(
        purpose="how many steps fine detail commits after coarse structure, beside the same of a "
        "Gaussian with the covariance of the images",
        keys=("label", "g", "control"),
        columns=(
            LABEL,
            CLASS,
            G,
            CONTROL,
            Column(
                "gap",
                "mean step at which fine distance is lost less that of coarse distance",
                "step",
                JOINT,
            ),
            Column("gaussian", "the same of the Gaussian control", "step", JOINT),
            Column("excess", "gap less that of the control", "step", JOINT),
            Column("p", "p value of the excess, corrected for all couplings and classes"),
            PAIRS,
            Column("status", "ok; no transition or no control where there is no number"),
            BECAUSE,
        ),
        optional=True,
    ),
    "coupling_effect": Table(
        purpose="how much the coupling moves the step at which two replicas commit",
        keys=("label", "kind"),
        columns=(
            LABEL,
            CLASS,
            Column("kind", "which two midpoints are compared"),
            Column("difference", "difference of the midpoints of features", "step", ENDS),
            PAIRS,
            STATUS,
            BECAUSE,
        ),
        optional=True,
    ),
}
"""Tables of the stage that couples replicas and lets them go."""


# Couplings and classes are in the names of shards, so that a wider sweep reuses those of a narrower
# one. The interventions are not: one walk serves all of them.
STAGE = Stage(
    name="commitment",
    home=__name__,
    measure="measure.commitment",
    judge="judge.commitment_order",
    claims=(ORDER,),
    settings=(
        "seed",
        "pairs",
        "finals",
        "steps",
        "sigma",
        "eta",
        "guidance",
        "coarse",
        "batch",
        "interventions",
    ),
    tables=TABLES,
)
