"""``flowscope decode``: how many passes of a masked diffusion language model can be left out."""

from flowscope.instruments.decode import calibration, reference, trial, window
from flowscope.instruments.decode.config import DecodeConfig
from flowscope.lab.instrument import Argument, Instrument

__all__ = ["INSTRUMENT"]

INSTRUMENT = Instrument(
    name="decode",
    home=__name__,
    config=DecodeConfig,
    prepare="subject.prepare",
    result="result.Decode",
    page="page.PAGE",
    headline="headline.show",
    main_table="policies",
    studies=("track_d.STUDY",),
    findings="findings.findings",
    arguments=(
        Argument(
            name="source",
            help="A folder, a hub id, a model in memory, what `load` or `infiller` returned; the "
            "bundled denoiser when nothing is given.",
            positional=True,
            setting="model",
        ),
        Argument(
            name="texts",
            help="Fresh prompts: texts, templates, or tuples of ids, blanks and (where it is "
            "known) the truth; those of the task or the text when nothing is given. Without "
            "calibration_texts the first of them calibrate.",
            annotation="Any",
            positional=True,
        ),
        Argument(
            name="calibration_texts",
            help="Prompts on which thresholds are calibrated, other ones than the fresh prompts.",
            annotation="Any",
        ),
        Argument(
            name="checker",
            help="What counts as the answer: a function of the token ids of a filled sequence, "
            "whose values are compared; all tokens of the region when nothing is given.",
            annotation="Callable[[list[int]], Any] | None",
        ),
        Argument(
            name="tokenizer",
            help="Replaces the tokenizer that comes with the weights: an object, a folder or a hub "
            "id.",
            setting="tokenizer",
        ),
    ),
    stages=(reference.STAGE, calibration.STAGE, window.STAGE, trial.STAGE),
    alone="it measures the time of every pass, which other processes would disturb",
)
