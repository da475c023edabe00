"""The page of a run about an image model and its samplers."""

from flowscope.instruments.image import INSTRUMENT
from flowscope.instruments.image.claims import PARITY
from flowscope.instruments.image.figures.sections import FIGURES, image_sections
from flowscope.instruments.image.figures.tables import FEW_IMAGES, image_facts, silent_images
from flowscope.lab.pages import declared_page
from flowscope.report.captions import small_remark
from flowscope.report.source import Source
from flowscope.report.spec import Fact

__all__ = ["PAGE"]


def _facts(source: Source) -> list[Fact]:
    facts = image_facts(source)
    return [(name, value) for name, value in facts if name not in ("encoder", "coordinates")]


def _remark(source: Source) -> str:
    return small_remark(source, FEW_IMAGES)


PAGE = declared_page(
    INSTRUMENT,
    kind="image model",
    sections=image_sections,
    facts=_facts,
    remark=_remark,
    silent=silent_images,
    scripts=("choices.js",),
    figures=FIGURES,
    basis=PARITY.name,
    counted="images",
    symbols={"λ": "amount of noise on the way: 0 for the ODE, 1 for the SDE"},
)
"""How a run about an image model is shown."""
