"""How much energy weak and strong modes of a difference keep inside the network."""

from flowscope.instruments.sync.columns import BECAUSE, LAYER, PAIRS, STATUS, STEP, G
from flowscope.lab.claim import ENDS, Claim, Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["GAP", "STAGE", "TABLES"]


GAP = Claim(
    name="R2",
    title="Internal gap",
    says="without coupling, weak modes of difference retain more energy than strong ones, beyond "
    "what the same weights in random order do",
    asks="Without any coupling, do the weak directions in which two generations differ retain more "
    "of their energy inside the network than the strong ones, and more than in networks with the "
    "same weights in random order? Random layers with large weights do so too.",
    unit="pairs",
)


TABLES = {
    "internal_gap": Table(
        purpose="the gap between leading and trailing modes, by layer",
        keys=("g", "layer"),
        columns=(
            G,
            Column("layer", "layer, from 1; 0 is the latents before any block"),
            Column("step", "reverse step at which the gap is read"),
            Column("naive", "energy of the trailing over the leading band, as published"),
            Column(
                "mixed_log_gap",
                "split-half log ratio of the bands between two diffusion times, as published",
                "nat",
            ),
            Column(
                "log_gap",
                "split-half log ratio of trailing and leading band at one diffusion time; 0 "
                "without a change",
                "nat",
                ENDS,
            ),
            Column("null_low", "lower end of the 95 % band of the exchange null", "nat"),
            Column("null_high", "upper end of the 95 % band of the exchange null", "nat"),
            Column("p", "p value of this layer under the exchange null"),
            Column("detectable", "smallest log ratio that is seen with power 0.8", "nat"),
            Column("band", "modes in each band"),
            PAIRS,
            STATUS,
            BECAUSE,
            Column("p_all", "p value over all layers at once"),
        ),
    ),
    "internal_gap_twins": Table(
        purpose="the mean over layers of the internal gap, of the model and of networks with its "
        "weights in random order",
        keys=("network",),
        columns=(
            Column("network", "0 is the model, from 1 on networks with its weights shuffled"),
            Column(
                "value",
                "mean log ratio over layers beyond its exchange null, less that of the latents",
                "nat",
                ENDS,
            ),
            BECAUSE,
        ),
        optional=True,
    ),
    "energies": Table(
        purpose="the energy of leading and trailing modes over the reverse steps",
        keys=("g", "layer", "step"),
        columns=(
            G,
            LAYER,
            STEP,
            Column(
                "lead", "energy of the leading modes over that at the first step, mean of the band"
            ),
            Column("trail", "the same for the trailing modes"),
            Column(
                "difference",
                "mean square of the difference of the replicas over that of the hidden states",
            ),
        ),
    ),
}
"""Tables of the stage that reads the modes of the difference inside the model."""


# Bands and steps are in the names of shards, so that a wider sweep reuses those of a narrower one.
STAGE = Stage(
    name="internal gap",
    home=__name__,
    measure="measure.modes",
    judge="judge.internal_gap",
    claims=(GAP,),
    uses=("commitment",),
    settings=("seed", "pairs", "steps", "mode_sigma", "guidance", "twins"),
    tables=TABLES,
)
