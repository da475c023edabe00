"""Of every claim: a subject on which it holds, one on which it fails, and one that decides nothing.

A verdict that is green wherever one looks says nothing. The stored runs of all panels are counted
and put side by side; nothing is run here.

Run: ``python -m benchmarks.green_and_red``; writes the table *green and red* of
``docs/theory/what-holds-means.md``.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.calibration import written
from flowscope.lab.registry import instruments, studies, study

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[1] / "docs" / "theory" / "what-holds-means.md"
PANELS = ("verdict", "heads", "sync", "image", "field", "latent")
"""Panels whose file has parts, subjects in each, and a run of every seed of a subject."""

PARTS = ("known", "random", "real", "bundled")
NO_VERDICT = ("uninformative", "abstains")
KINDS = ("holds", "fails", *NO_VERDICT)


class Tally(NamedTuple):
    """How often a subject of a panel had one of some outcomes."""

    subject: str
    count: int
    runs: int

    def __str__(self) -> str:
        return f"{self.subject} ({self.count} of {self.runs})"


Outcomes = dict[str, dict[str, list[str]]]


def claims() -> list[str]:
    """Names of all claims of all instruments and studies, each instrument's together."""
    homes = (*instruments(), *(study(name) for name in studies()))
    return list(dict.fromkeys(c.name for home in homes for s in home.stages for c in s.claims))


def _document(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return document


def _stored() -> Iterator[tuple[str, str, str]]:
    """Claim, subject and outcome of every stored run, known subjects first."""
    for part in PARTS:
        for panel in PANELS:
            for subject, runs in _document(f"{panel}_panel").get(part, {}).items():
                for seed, run in runs.items():
                    name = f"{subject}, {seed}" if part == "real" else subject
                    for claim, row in run["verdicts"].items():
                        yield claim, name, row["outcome"]
    for subject, runs in _document("decode_panel")["runs"].items():
        for run in runs:
            for claim, row in run.items():
                yield claim, subject, row["outcome"]
    for subject, row in _document("consensus_panel")["subjects"].items():
        yield "L4", subject, row["outcome"]


def outcomes() -> Outcomes:
    """Outcomes of all stored runs, by claim and subject."""
    found: Outcomes = {}
    for claim, subject, outcome in _stored():
        found.setdefault(claim, {}).setdefault(subject, []).append(outcome)
    return found


def clearest(subjects: Mapping[str, Sequence[str]], wanted: Sequence[str]) -> Tally | None:
    """The subject that has one of these outcomes in the largest share of its runs.

    The first where several have; none where no run has one of them.
    """
    counts = [
        Tally(name, sum(outcome in wanted for outcome in runs), len(runs))
        for name, runs in subjects.items()
    ]
    best = max(counts, key=lambda tally: tally.count / tally.runs, default=None)
    return best if best is not None and best.count else None


def page_table() -> str:
    """The table of the page."""
    found = outcomes()
    lines = ["| verdict | holds | fails | decides nothing |", "| --- | --- | --- | --- |"]
    for claim in claims():
        subjects = found.get(claim, {})
        kinds = (("holds",), ("fails",), NO_VERDICT)
        cells = [str(clearest(subjects, kind) or "–") for kind in kinds]
        lines.append(f"| {claim} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    table = page_table()
    print(table)
    text = written(PAGE.read_text(encoding="utf-8"), "green and red", table)
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
