"""``flowscope field``: what each block does to the tokens of the residual stream."""

from flowscope.instruments.field import budget, collapse, forecast, interventions, jacobians
from flowscope.instruments.field.config import FieldConfig
from flowscope.lab.instrument import Argument, Instrument

__all__ = ["INSTRUMENT"]

INSTRUMENT = Instrument(
    name="field",
    home=__name__,
    config=FieldConfig,
    prepare="subject.prepare",
    result="result.Field",
    page="page.PAGE",
    headline="headline.show",
    main_table="blocks",
    findings="findings.findings",
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
            annotation="Any",
            positional=True,
        ),
        Argument(
            name="inputs",
            help="Keyword arguments of the forward pass instead: a mapping per batch, a list of "
            "them, or a DataLoader.",
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
        budget.STAGE,
        collapse.STAGE,
        jacobians.STAGE,
        interventions.STAGE,
        forecast.STAGE,
    ),
    studies=("pde_view.STUDY",),
)
