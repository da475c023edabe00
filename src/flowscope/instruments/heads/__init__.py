"""``flowscope heads``: the Markov geometry of every attention head."""

from flowscope.instruments.heads import dials, geometry, portrait
from flowscope.instruments.heads.config import HeadsConfig
from flowscope.lab.instrument import Argument, Instrument

__all__ = ["INSTRUMENT"]

INSTRUMENT = Instrument(
    name="heads",
    home=__name__,
    config=HeadsConfig,
    prepare="subject.prepare",
    result="result.Heads",
    page="page.PAGE",
    headline="headline.show",
    main_table="geometry",
    findings="findings.findings",
    arrays=("portrait",),
    studies=("diffusion_attention.STUDY",),
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
            "A model that reads neither is read on noise of the right shape, and the run says so.",
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
    stages=(geometry.STAGE, portrait.STAGE, dials.STAGE),
)
