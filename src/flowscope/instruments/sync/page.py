"""The page of a run of coupled replicas."""

from collections.abc import Mapping

import pandas as pd

from flowscope.instruments.sync import INSTRUMENT
from flowscope.instruments.sync.commitment import figures as commitment
from flowscope.instruments.sync.commitment import strip
from flowscope.instruments.sync.internal_gap import figures as internal_gap
from flowscope.instruments.sync.propagation import figures as propagation
from flowscope.instruments.sync.series import series_of
from flowscope.instruments.sync.synchronization_gap.figures import replica_claims
from flowscope.lab.display.pages import declared_page
from flowscope.report.claims import claims_section
from flowscope.report.figure_html import fact_list
from flowscope.report.parts.appendix import place_text, silent_rows
from flowscope.report.source import Source
from flowscope.report.spec import Fact, Section

__all__ = ["PAGE", "replica_facts", "silent_replicas"]


_PLACES = {
    "commitment": ("class", "g", "measure"),
    "commitment_gap": ("class", "g"),
    "commitment_order": ("class", "g"),
    "internal_gap": ("g", "layer"),
    "mode_commitment": ("g", "layer", "mode"),
}


def _sections(source: Source) -> list[Section]:
    """Sections of the page of a run of coupled replicas, in order."""
    study = [claims_section(replica_claims)] if source.study else []
    extras: dict[str, Section] = {
        "propagation": (
            "propagation",
            "How a block multiplies a difference",
            propagation.propagation_section,
        ),
        "mode_commitment": (
            "modes",
            "Predicted and measured commitment",
            propagation.modes_section,
        ),
    }
    return [
        ("measured", "What was measured", _measured),
        *study,
        (
            "agreement",
            "When is it decided that two replicas end up the same?",
            commitment.agreement_section,
        ),
        ("scales", "Is coarse structure decided before fine detail?", commitment.scales_section),
        ("gap", "The internal gap, by layer", internal_gap.gap_section),
        ("energies", "Energy of the modes over time", internal_gap.energies_section),
        ("strip", "Pairs of samples", strip.strip_section),
        *(section for table, section in extras.items() if table in source.tables),
    ]


def _measured(source: Source) -> str:
    return (
        "<p>Two images, A and B, are generated side by side from nearly the same noise. With "
        "strength g each image also attends to the other: at g = 0 they are independent, at g = 1 "
        "both have the same weight. Steps count from the noise (step 0) to the finished image.</p>"
        "<p>First question: A and B are coupled up to some step and independent after it. If the "
        "finished images are similar, what they share was decided before that step. Second "
        "question: A and B stay coupled to the end, and their difference is measured inside the "
        "network, split into directions that are strong at the start (leading modes) and weak at "
        "the start (trailing modes).</p>"
        f"<p>{_intervals(source)}</p>"
        f"{fact_list(replica_facts(source))}"
    )


def _intervals(source: Source) -> str:
    """How the intervals of all figures were made; no caption repeats it."""
    resamples = source.setting("resamples")
    many = f" ({resamples} resamples)" if isinstance(resamples, int) else ""
    return (
        f"All intervals are at the 95\u00a0% level: bootstrap over pairs{many}; for the internal "
        "gap of a layer, jackknife over the pairs that were measured; those against the Gaussian "
        "control hold for all couplings and classes together."
    )


def replica_facts(source: Source) -> list[tuple[str, str]]:
    """Size of the measurement, as name and value."""
    measured = source.setting("measured")
    known = dict(measured) if isinstance(measured, Mapping) else {}
    facts = [
        (text, str(known[name]))
        for name, text in {
            "pairs": "pairs",
            "steps": "reverse steps",
            "layers": "layers",
            "tokens": "tokens",
        }.items()
        if name in known
    ]
    couplings = [one.g for one in series_of(source, *source.tables) if not one.control]
    facts += [("g", ", ".join(f"{g:g}" for g in couplings))] * bool(couplings)
    classes = known.get("classes")
    if isinstance(classes, list | tuple) and classes:
        facts += [("class" if len(classes) == 1 else "classes", ", ".join(map(str, classes)))]
    return facts + ([("encoder", str(known["encoder"]))] if "encoder" in known else [])


def silent_replicas(source: Source) -> list[tuple[str, str]]:
    """Rows that abstained, by table and reason; "no transition" is an outcome, not an absence."""
    return silent_rows(source, _PLACES, _place)


def _place(row: pd.DataFrame, name: str) -> str:
    return commitment.coupling_name(row) if name == "g" else place_text(row, name)


def _facts(source: Source) -> list[Fact]:
    return [(name, value) for name, value in replica_facts(source) if name != "encoder"]


PAGE = declared_page(
    INSTRUMENT,
    kind="coupled replicas",
    sections=_sections,
    facts=_facts,
    silent=silent_replicas,
    scripts=("choices.js",),
    figures={
        **commitment.FIGURES,
        **internal_gap.FIGURES,
        **strip.FIGURES,
        **propagation.FIGURES,
    },
    counted="pairs",
    symbols={"τ": "step at which a pair commits: the midpoint of a fitted sigmoid"},
)
"""How a run of coupled replicas is shown."""
