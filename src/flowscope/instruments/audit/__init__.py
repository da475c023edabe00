"""``flowscope audit``: where along depth a model moves its probability mass."""

from flowscope.instruments.audit import (
    adequacy,
    contraction,
    exits,
    locking,
    rotation,
    tokens,
    variation,
)
from flowscope.instruments.audit.config import AuditConfig
from flowscope.lab.instrument import Argument, Instrument

__all__ = ["INSTRUMENT"]

INSTRUMENT = Instrument(
    name="audit",
    home=__name__,
    config=AuditConfig,
    prepare="subject.prepare",
    result="result.Audit",
    page="page.PAGE",
    headline="headline.show",
    main_table="layers",
    findings="findings.findings",
    compare="comparison.compared",
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
            help="Prompts, or images for a vision model; the packaged ones when nothing is given. "
            "A list, one running text, a column or rows of a table, a data set, a DataLoader.",
            annotation="Any",
            positional=True,
        ),
        Argument(
            name="inputs",
            help="Images instead: batches of keyword arguments of the forward pass, e.g. a "
            "DataLoader.",
            annotation="Iterable[Mapping[str, Any]] | None",
        ),
        Argument(
            name="tokenizer",
            help="Replaces the tokenizer that comes with the weights: an object, a folder or a hub "
            "id.",
            setting="tokenizer",
        ),
    ),
    stages=(
        variation.STAGE,
        tokens.STAGE,
        locking.STAGE,
        contraction.STAGE,
        exits.STAGE,
        adequacy.STAGE,
        rotation.STAGE,
    ),
)
