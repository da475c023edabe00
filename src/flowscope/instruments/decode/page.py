"""The page of a run of ``decode``."""

from collections.abc import Mapping

from flowscope.instruments.decode import INSTRUMENT
from flowscope.instruments.decode.reference import figures as reference
from flowscope.instruments.decode.trial import figures as trial
from flowscope.instruments.decode.window import figures as window
from flowscope.lab.display.pages import declared_page
from flowscope.report.claims import claims, claims_section
from flowscope.report.source import Source
from flowscope.report.spec import Fact, Section

__all__ = ["PAGE"]


def _sections(source: Source) -> list[Section]:
    said = claims_section(lambda run: claims(run, "track_d", "000", "diffusion language models"))
    return [
        *([said] if source.study else []),
        ("frontier", "How many passes can be left out?", trial.frontier_section),
        ("map", "What happens in each pass?", reference.map_section),
        ("settling", "When is the answer known?", reference.settling_section),
        ("window", "What does a window of passes certify?", window.window_section),
    ]


def _facts(source: Source) -> list[Fact]:
    measured = source.setting("measured")
    given = dict(measured) if isinstance(measured, Mapping) else {}
    names = {"task": "prompts", "prompts": "fresh", "calibration_prompts": "for calibration"}
    facts = [
        (text, str(given[name]))
        for name, text in names.items()
        if given.get(name) not in (None, "")
    ]
    blanks = given.get("blanks")
    if isinstance(blanks, list | tuple) and len(blanks) == 2:
        facts.append(("masked tokens", f"{blanks[0]} to {blanks[1]}"))
    return list(facts)


PAGE = declared_page(
    INSTRUMENT,
    kind="decoding",
    sections=_sections,
    facts=_facts,
    scripts=("choices.js",),
    figures={**trial.FIGURES, **reference.FIGURES, **window.FIGURES},
    counted="prompts",
    symbols={"α": "share of answers that may change", "W": "passes in a window"},
)
"""How a run of ``decode`` is shown."""
