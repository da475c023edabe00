"""Thresholds that change at most a share alpha of the answers, from the calibration prompts."""

from flowscope.instruments.decode.reference import DECIDES
from flowscope.lab.claim import ENDS, Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["STAGE", "TABLES"]

TABLES = {
    "calibration": Table(
        purpose="every threshold that was tried on the calibration prompts",
        keys=("policy", "threshold"),
        columns=(
            Column("policy", "name of the policy"),
            Column("threshold", "its threshold"),
            Column("place", "place of the threshold from the strictest, from 1"),
            Column("n", "calibration prompts"),
            Column("errors", "prompts whose answer differs from the reference's"),
            Column("risk", "share of them", "", ENDS),
            Column("p_value", "of “the risk exceeds alpha”; the bound of the conformal method"),
            Column("passes", "mean passes"),
            Column("saved", "mean share of the reference's passes that is left out"),
            Column("correct", "share of right answers; empty where they are not known"),
            Column("chosen", "1 for the loosest threshold that keeps the promise"),
        ),
        optional=True,
    ),
    "thresholds": Table(
        purpose="the calibrated threshold of each policy",
        keys=("policy",),
        columns=(
            Column("policy", "name of the policy"),
            Column("threshold", "calibrated threshold; empty where there is none"),
            Column("default", "its published threshold"),
            Column("errors", "changed answers on the calibration prompts"),
            Column("n", "calibration prompts"),
            Column("p_value", "of “more than a share alpha changes”"),
            Column("needed", "prompts that a calibration needs; 0 where no number is enough"),
            Column("because", "why there is no threshold; empty where there is one"),
        ),
    ),
}
"""Tables of the calibration."""

STAGE = Stage(
    name="calibration",
    home=__name__,
    measure="measure.calibration",
    settings=DECIDES,
    tables=TABLES,
    uses=("reference",),
)
"""The stage: walk every policy's thresholds from the strictest on and choose one."""
