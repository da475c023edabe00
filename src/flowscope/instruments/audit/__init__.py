"""``flowscope audit``: where along depth a model moves its probability mass."""

from flowscope.instruments.audit.claims import (
    ADEQUACY,
    CONTRACTION,
    LOCKING,
    ROTATION,
    VARIATION,
)
from flowscope.instruments.audit.config import AuditConfig
from flowscope.lab.claim import Table
from flowscope.lab.instrument import Argument, Instrument, Stage

__all__ = ["INSTRUMENT"]

_PASS = ("batch", "curvature_pairs")

INSTRUMENT = Instrument(
    name="audit",
    home=__name__,
    config=AuditConfig,
    prepare="subject.prepare",
    result="result.Audit",
    page="page.PAGE",
    headline="headline.show",
    main_table="layers",
    compare="comparison.compared",
    identity=_PASS,
    studies=("track_t.STUDY",),
    arguments=(
        Argument(
            name="source",
            help="A folder, a hub id, a .gguf file, a model in memory or what `load` returned; the "
            "bundled language model when nothing is given.",
            positional=True,
            setting="model",
        ),
        Argument(
            name="texts",
            help="Prompts, or images for a vision model; the packaged ones when nothing is given.",
            annotation="Sequence[str] | Tensor | None",
            positional=True,
        ),
        Argument(name="tokenizer", help="Used instead of the tokenizer beside the weights."),
    ),
    stages=(
        Stage(
            name="depth",
            home=__name__,
            measure="measuring.depth",
            judge="judge.depth",
            claims=(VARIATION, LOCKING),
            settings=_PASS,
            tables={
                "layers": Table(purpose="every quantity along depth", keys=("layer",)),
                "segments": Table(
                    purpose="the segments of the depth and their gate",
                    keys=("first_layer", "last_layer"),
                ),
                "jumps": Table(
                    purpose="the steps that are too large to be part of a segment", keys=("layer",)
                ),
                "locking": Table(
                    purpose="how far a step moves the output, by tail mass", keys=("tail_mass",)
                ),
                "locking_depth": Table(
                    purpose="the layer from which the top token never changes", keys=("layer",)
                ),
                "tokens": Table(
                    purpose="the token-by-layer map", keys=("prompt", "position", "layer")
                ),
                "heads": Table(
                    purpose="attention entropy by layer and head", keys=("layer", "head")
                ),
                "simplex_path": Table(purpose="one path on the simplex", keys=("layer",)),
            },
        ),
        Stage(
            name="contraction",
            home=__name__,
            measure="measuring.contraction",
            judge="judge.contraction",
            claims=(CONTRACTION,),
            tables={
                "curvature": Table(
                    purpose="curvature of attention by layer and head", keys=("layer", "head")
                ),
                "curvature_response": Table(
                    purpose="curvature under other temperatures and key norms",
                    keys=("kind", "value", "layer"),
                ),
                "evi": Table(
                    purpose="the evolution variational inequality along the output path",
                    keys=("layer",),
                ),
            },
        ),
        Stage(
            name="flow",
            home=__name__,
            measure="measuring.flow",
            judge="judge.flow",
            claims=(ADEQUACY,),
            tables={
                "adequacy": Table(
                    purpose="how well a fitted flow forecasts the layers of other prompts"
                ),
                "adequacy_clouds": Table(
                    purpose="forecast and true states compared as clouds of points"
                ),
                "drifts": Table(purpose="the kinds of drift that were fitted"),
                "overlay": Table(
                    purpose="how far each layer moves the output beside what bounds it",
                    keys=("layer",),
                ),
                "budget": Table(
                    purpose="the error of the forecast beside the budget of each token"
                ),
                "depth_loss": Table(
                    purpose="what the last layers of a language model are worth",
                    keys=("removed",),
                ),
            },
        ),
        Stage(
            name="rotation",
            home=__name__,
            measure="measuring.rotation",
            judge="judge.rotation",
            claims=(ROTATION,),
            tables={
                "rotation": Table(
                    purpose="the share of the motion that turns, by layer", keys=("layer",)
                )
            },
        ),
    ),
)
