"""When an image decides its class."""

from flowscope.instruments.image import parity
from flowscope.instruments.image.columns import IMAGES, LOG_SNR, STEP, TIME
from flowscope.lab.claim import ENDS, INTERVAL, Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["STAGE", "TABLES"]


TABLES = {
    "information": Table(
        purpose="the information of the state about its class, by time",
        keys=("step",),
        columns=(
            STEP,
            TIME,
            LOG_SNR,
            Column(
                "rate",
                "rate at which states learn their class, from the errors of the denoiser",
                "nat per unit of log_snr",
                INTERVAL,
            ),
            Column("entropy", "entropy of the class given the state", "nat", ENDS),
            Column(
                "rate_by_distance",
                "the rate from the distance of the two predictions instead",
                "nat per unit of log_snr",
            ),
            Column("entropy_by_distance", "the entropy from that rate", "nat"),
            Column("exact", "the entropy in closed form; of the mixture alone", "nat"),
            IMAGES,
        ),
    )
}
"""Table of the stage that asks what a state knows of its class."""


STAGE = Stage(
    name="information",
    home=__name__,
    measure="measure.information",
    uses=("parity",),
    settings=parity.STAGE.settings,
    tables=TABLES,
)
