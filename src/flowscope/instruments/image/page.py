"""The page of a run about an image model and its samplers."""

from flowscope.instruments.image.figures.pictures import IMAGE_PICTURES
from flowscope.instruments.image.figures.sections import image_sections
from flowscope.instruments.image.figures.tables import FEW_IMAGES, image_facts, silent_images
from flowscope.report.small_runs import small_remark
from flowscope.report.source import Source
from flowscope.report.spec import Fact, Page

__all__ = ["PAGE"]

_TABLES = {
    "parity": "how far apart the histograms of the two samplers are, by time",
    "weak_error": "how much an observable moves when the number of steps doubles",
    "weak_error_slope": "how fast that falls as the number of steps grows",
    "smoothness": "the size of the steps of both samplers, by time",
    "paths": "the length of the paths of both samplers",
    "rotation": "the share of the learned score that turns, by time",
    "information": "what the state knows of its class, by time",
    "uturn": "whether images noised to a time and brought back are of the same class",
    "family": "accuracy and histograms from ODE to SDE, by number of steps",
}
_STUDY_TABLES = {"track_i": "what the source says beside what was measured"}
_QUESTIONS = {
    "I1": "Do the deterministic and the noisy sampler of one model give the same histogram of "
    "pixels at every time? Beside it: the noisy sampler against itself with other noise.",
    "I2": "Does twice the number of steps halve what the steps get wrong?",
    "I3": "Does the learned score push along a potential, or does part of it turn, which no density"
    " explains? Beside it: the same reading of a field that is a gradient.",
}


def _facts(source: Source) -> list[Fact]:
    facts = image_facts(source)
    return [(name, value) for name, value in facts if name not in ("encoder", "coordinates")]


def _remark(source: Source) -> str:
    return small_remark(source, FEW_IMAGES)


PAGE = Page(
    command="image",
    telling=(*(name for name in _TABLES if name != "rotation"), *_STUDY_TABLES),
    kind="image model",
    tables=_TABLES,
    study_tables=_STUDY_TABLES,
    arrays=("samples", "uturn_strip"),
    sections=image_sections,
    facts=_facts,
    remark=_remark,
    silent=silent_images,
    scripts=("choices.js",),
    pictures=IMAGE_PICTURES,
    questions=_QUESTIONS,
    basis="I1",
    units="images",
    counted="images",
)
"""How a run about an image model is shown."""
