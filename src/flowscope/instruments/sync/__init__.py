"""``flowscope sync``: when two coupled generations of a diffusion model commit to one outcome."""

from flowscope.instruments.sync.claims import GAP, ORDER
from flowscope.instruments.sync.config import SyncConfig
from flowscope.lab.claim import Table
from flowscope.lab.instrument import Argument, Instrument, Stage

__all__ = ["INSTRUMENT"]

# Couplings, classes, bands and steps are in the names of shards, so that a wider sweep reuses those
# of a narrower one. The interventions are not: one walk serves all of them.
_PAIRS = ("seed", "pairs", "steps", "sigma", "eta", "guidance", "coarse", "batch", "interventions")
_MODES = ("seed", "pairs", "steps", "mode_sigma", "guidance")

# In the order of the file; the keys, which name a row, are beside each table.
_COLUMNS = {
    "agreement": ("class", "value", "low", "high", "n", "fit"),
    "commitment": (
        "class", "midpoint", "low", "high", "amplitude", "amplitude_low", "amplitude_high",
        "width", "n", "status", "because",
    ),
    "commitment_gap": ("class", "gap", "low", "high", "n", "status", "because"),
    "coupling_effect": ("class", "difference", "low", "high", "n", "status", "because"),
    "internal_gap": (
        "step", "naive", "mixed_log_gap", "log_gap", "low", "high", "null_low", "null_high", "p",
        "detectable", "band", "n", "status", "because", "p_all",
    ),
    "energies": ("lead", "trail", "difference"),
    "propagation": (
        "gain", "direct", "routing", "query", "key", "gain_low", "gain_high", "eigenvalue",
        "residual", "n",
    ),
    "mode_commitment": ("predicted", "measured", "status", "because", "overlap"),
    "speciation": ("eta", "m2", "c", "gamma", "kappa", "status", "because"),
    "assumptions": ("quantity", "median", "least", "largest", "share", "n", "rule"),
}  # fmt: skip

INSTRUMENT = Instrument(
    name="sync",
    home=__name__,
    config=SyncConfig,
    prepare="subject.prepare",
    result="result.Sync",
    page="page.PAGE",
    headline="headline.show",
    main_table="commitment",
    arrays=("strip",),
    identity=(*_PAIRS, "mode_sigma"),
    studies=("synchronization_gap.STUDY",),
    arguments=(
        Argument(
            name="source",
            help="A pipeline folder, a hub id, a pipeline or a model in memory; the bundled "
            "diffusion transformer when nothing is given.",
            positional=True,
            setting="model",
        ),
        Argument(
            name="scheduler",
            help="The schedule the model was trained with (a scheduler of diffusers, or its "
            "folder); that of the pipeline by default. It must be variance preserving.",
            setting="scheduler",
        ),
        Argument(
            name="encoder",
            help="What says how alike two images are: a function from images in [−1, 1] to "
            "features, or the folder of an image model. The bundled one reads images of "
            "1 × 28 × 28.",
            setting="encoder",
        ),
        Argument(
            name="classes",
            help="Names of the classes, where the folder has none.",
            annotation="Sequence[str]",
            default=(),
        ),
    ),
    stages=(
        Stage(
            name="commitment",
            home=__name__,
            measure="measuring.commitment",
            judge="judge.commitment_order",
            claims=(ORDER,),
            settings=_PAIRS,
            tables={
                "agreement": Table(
                    purpose="how similar the replicas are, by the step at which coupling ended",
                    keys=("label", "g", "control", "measure", "step"),
                    columns=_COLUMNS["agreement"],
                ),
                "commitment": Table(
                    purpose="the step at which each kind of agreement sets in",
                    keys=("label", "g", "control", "measure"),
                    columns=_COLUMNS["commitment"],
                ),
                "commitment_gap": Table(
                    purpose="how many steps fine detail commits after coarse structure",
                    keys=("label", "g", "control"),
                    columns=_COLUMNS["commitment_gap"],
                ),
                "coupling_effect": Table(
                    purpose="how much the coupling moves the step at which two replicas commit",
                    keys=("label", "kind"),
                    columns=_COLUMNS["coupling_effect"],
                    optional=True,
                ),
            },
        ),
        Stage(
            name="internal gap",
            home=__name__,
            measure="measuring.modes",
            judge="judge.internal_gap",
            claims=(GAP,),
            settings=_MODES,
            tables={
                "internal_gap": Table(
                    purpose="the gap between leading and trailing modes, by layer",
                    keys=("g", "layer"),
                    columns=_COLUMNS["internal_gap"],
                ),
                "energies": Table(
                    purpose="the energy of leading and trailing modes over the reverse steps",
                    keys=("g", "layer", "step"),
                    columns=_COLUMNS["energies"],
                ),
            },
        ),
        Stage(
            name="propagation",
            home=__name__,
            measure="measuring.propagation",
            settings=_MODES,
            tables={
                "propagation": Table(
                    purpose="how one block multiplies a difference, and through which channel",
                    keys=("g", "layer", "step", "band"),
                    columns=_COLUMNS["propagation"],
                    optional=True,
                ),
                "mode_commitment": Table(
                    purpose="when each mode was predicted to commit and when it did",
                    keys=("layer", "mode", "g"),
                    columns=_COLUMNS["mode_commitment"],
                    optional=True,
                ),
                "speciation": Table(
                    purpose="the two wells of the leading mode of a block",
                    keys=("layer", "step", "mode"),
                    columns=_COLUMNS["speciation"],
                    optional=True,
                ),
                "assumptions": Table(
                    purpose="what the linear theory assumes of a block, measured",
                    keys=("equation",),
                    columns=_COLUMNS["assumptions"],
                    optional=True,
                ),
            },
        ),
    ),
)
