"""Tables of coupled replicas: purpose, keys, and the unit and meaning of every column."""

from flowscope.lab.claim import ENDS, INTERVAL, Column, Table

__all__ = ["COMMITMENT", "INTERNAL_GAP", "PROPAGATION"]

_LABEL = Column("label", "number of the class")
_CLASS = Column("class", "name of the class")
_G = Column("g", "coupling of the replicas, from 0 (none) to 1")
_CONTROL = Column("control", "whether the replicas share their noise and are not coupled")
_MEASURE = Column("measure", "what is compared: feature, coarse or fine")
_LAYER = Column("layer", "layer, from 1")
_STEP = Column("step", "reverse step, from 0 (noise)")
_PAIRS = Column("n", "number of pairs of replicas")
_STATUS = Column("status", "ok; no transition or abstained where there is no number")
_BECAUSE = Column("because", "why there is no number; empty where there is one")

COMMITMENT = {
    "agreement": Table(
        purpose="how similar the replicas are, by the step at which coupling ended",
        keys=("label", "g", "control", "measure", "step"),
        columns=(
            _LABEL,
            _CLASS,
            _G,
            _CONTROL,
            _MEASURE,
            Column("step", "reverse step at which the replicas were let go"),
            Column(
                "value",
                "how alike the images are, median over pairs: cosine of features, or one less the "
                "distance at that scale over that of independent images",
                beside=ENDS,
            ),
            _PAIRS,
            Column("fit", "sigmoid fitted to the medians; empty without a transition"),
        ),
    ),
    "commitment": Table(
        purpose="the step at which each kind of agreement sets in",
        keys=("label", "g", "control", "measure"),
        columns=(
            _LABEL,
            _CLASS,
            _G,
            _CONTROL,
            _MEASURE,
            Column("midpoint", "midpoint of the sigmoid fitted to the agreement", "step", ENDS),
            Column(
                "amplitude",
                "agreement in the last quarter of the steps less that in the first",
                beside=INTERVAL,
            ),
            Column("width", "width of the sigmoid", "step"),
            _PAIRS,
            _STATUS,
            _BECAUSE,
        ),
    ),
    "commitment_gap": Table(
        purpose="how many steps fine detail commits after coarse structure",
        keys=("label", "g", "control"),
        columns=(
            _LABEL,
            _CLASS,
            _G,
            _CONTROL,
            Column("gap", "midpoint of fine less midpoint of coarse agreement", "step", ENDS),
            _PAIRS,
            _STATUS,
            _BECAUSE,
        ),
    ),
    "coupling_effect": Table(
        purpose="how much the coupling moves the step at which two replicas commit",
        keys=("label", "kind"),
        columns=(
            _LABEL,
            _CLASS,
            Column("kind", "which two midpoints are compared"),
            Column("difference", "difference of the midpoints of features", "step", ENDS),
            _PAIRS,
            _STATUS,
            _BECAUSE,
        ),
        optional=True,
    ),
}
"""Tables of the stage that couples replicas and lets them go."""

INTERNAL_GAP = {
    "internal_gap": Table(
        purpose="the gap between leading and trailing modes, by layer",
        keys=("g", "layer"),
        columns=(
            _G,
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
            _PAIRS,
            _STATUS,
            _BECAUSE,
            Column("p_all", "p value over all layers at once"),
        ),
    ),
    "energies": Table(
        purpose="the energy of leading and trailing modes over the reverse steps",
        keys=("g", "layer", "step"),
        columns=(
            _G,
            _LAYER,
            _STEP,
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

PROPAGATION = {
    "propagation": Table(
        purpose="how one block multiplies a difference, and through which channel",
        keys=("g", "layer", "step", "band"),
        columns=(
            _G,
            _LAYER,
            _STEP,
            Column("band", "lead or trail: which modes"),
            Column("gain", "factor by which the block multiplies a difference, mean of the band"),
            Column("direct", "part of the gain through the skip connection and the MLP"),
            Column("routing", "part of the gain through the values"),
            Column("query", "part of the gain through the queries"),
            Column("key", "part of the gain through the keys"),
            Column("gain_low", "smallest gain over states; empty for a single state"),
            Column("gain_high", "largest gain over states; empty for a single state"),
            Column("eigenvalue", "leading eigenvalue of the block, at g = 0 and the middle step"),
            Column("residual", "residual of that eigenvalue"),
            Column("n", "modes times states behind the means"),
        ),
        optional=True,
    ),
    "mode_commitment": Table(
        purpose="when each mode was predicted to commit and when it did",
        keys=("layer", "mode", "g"),
        columns=(
            _G,
            Column("layer", "layer, from 2"),
            Column("mode", "rank of the mode, from 1"),
            Column("predicted", "first step at which the gain of the mode is 1", "step"),
            Column("measured", "midpoint of a sigmoid through its log energy", "step"),
            _STATUS,
            Column("because", "why nothing is measured, or nothing predicted"),
            Column("overlap", "squared inner product with the mode of this rank at g = 0"),
        ),
        optional=True,
    ),
    "speciation": Table(
        purpose="the two wells of the leading mode of a block",
        keys=("layer", "step", "mode"),
        columns=(
            Column("layer", "layer, from 2"),
            _STEP,
            Column("mode", "rank of the mode: 1"),
            Column("eta", "gain of the block without the score"),
            Column("m2", "squared half distance of the two wells along the mode"),
            Column("c", "variance around each well"),
            Column("gamma", "share of the score in the response"),
            Column("kappa", "speciation parameter κ; 1 where the wells part"),
            _STATUS,
            _BECAUSE,
        ),
        optional=True,
    ),
    "assumptions": Table(
        purpose="what the linear theory assumes of a block, measured",
        keys=("equation",),
        columns=(
            Column("equation", "number of the equation in source 004"),
            Column("quantity", "what is measured"),
            Column("median", "its median over layers, steps and states"),
            Column("least", "its smallest value"),
            Column("largest", "its largest value"),
            Column("share", "share of readings in which the assumption holds"),
            Column("n", "number of readings"),
            Column("rule", "when the assumption counts as holding"),
        ),
        optional=True,
    ),
}
"""Tables of the stage that measures the linear response of every block."""
