"""``flowscope heads``: the Markov geometry of every attention head."""

from flowscope.instruments.heads import schemas
from flowscope.instruments.heads.claims import DIRECTED, TRAINED
from flowscope.instruments.heads.config import HeadsConfig
from flowscope.lab.instrument import Argument, Instrument, Stage

__all__ = ["INSTRUMENT"]

_CHAIN = ("batch", "chain", "damping")

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
    identity=_CHAIN,
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
            annotation="Sequence[str] | Tensor | None",
            positional=True,
        ),
        Argument(
            name="inputs",
            help="Keyword arguments of the forward pass instead, one mapping per batch.",
            annotation="Sequence[Mapping[str, Any]] | None",
        ),
        Argument(name="tokenizer", help="Replaces the tokenizer that comes with the weights."),
    ),
    stages=(
        Stage(
            name="heads",
            home=__name__,
            measure="measuring.geometry",
            judge="judge.irreversibility",
            claims=(TRAINED, DIRECTED),
            settings=_CHAIN,
            tables=schemas.HEADS,
        ),
        Stage(
            name="portrait",
            home=__name__,
            measure="measuring.sentence_portrait",
            tables=schemas.PORTRAIT,
        ),
        Stage(
            name="dials",
            home=__name__,
            measure="measuring.turned_dials",
            tables=schemas.DIALS,
        ),
    ),
)
