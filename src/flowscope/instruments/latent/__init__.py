"""``flowscope latent``: the cloud of tokens at every layer."""

from flowscope.instruments.latent import entropy, particles, rate
from flowscope.instruments.latent.config import LatentConfig
from flowscope.lab.instrument import Argument, Instrument

__all__ = ["INSTRUMENT"]

INSTRUMENT = Instrument(
    name="latent",
    home=__name__,
    config=LatentConfig,
    prepare="subject.prepare",
    result="result.Latent",
    page="page.PAGE",
    headline="headline.show",
    main_table="layers",
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
    stages=(entropy.STAGE, rate.STAGE, particles.STAGE),
    studies=("stable_alignment.STUDY",),
)
"""How a run about the cloud of tokens is made and shown."""
