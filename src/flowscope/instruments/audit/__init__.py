"""``flowscope audit``: where along depth a model moves its probability mass."""

from flowscope.instruments.audit import schemas
from flowscope.instruments.audit.claims import (
    ADEQUACY,
    CONTRACTION,
    LOCKING,
    ROTATION,
    VARIATION,
)
from flowscope.instruments.audit.config import AuditConfig
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
        Argument(name="tokenizer", help="Replaces the tokenizer that comes with the weights."),
    ),
    stages=(
        Stage(
            name="depth",
            home=__name__,
            measure="measuring.depth",
            probes="measuring.depth_probes",
            claims=(VARIATION, LOCKING),
            settings=_PASS,
            tables=schemas.DEPTH,
        ),
        Stage(
            name="contraction",
            home=__name__,
            measure="measuring.contraction",
            claims=(CONTRACTION,),
            uses=("depth",),
            tables=schemas.CONTRACTION,
        ),
        Stage(
            name="flow",
            home=__name__,
            measure="measuring.flow",
            probes="measuring.path_probes",
            claims=(ADEQUACY,),
            uses=("depth",),
            tables=schemas.FLOW,
        ),
        Stage(
            name="rotation",
            home=__name__,
            measure="measuring.rotation",
            probes="measuring.path_probes",
            claims=(ROTATION,),
            uses=("depth",),
            tables=schemas.ROTATION,
        ),
    ),
)
