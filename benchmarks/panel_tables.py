"""The stored runs of the panel as tables of a page."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.known_subjects import EXPECTED

__all__ = ["OUTCOMES", "counted", "page_tables"]

OUTCOMES = ("holds", "fails", "uninformative", "abstains")
Row = Mapping[str, Any]
Runs = Mapping[str, Mapping[str, Any]]


def counted(rows: Sequence[Row]) -> dict[str, int]:
    """How often each outcome came."""
    return {name: sum(row["outcome"] == name for row in rows) for name in OUTCOMES}


def page_tables(document: Mapping[str, Any]) -> dict[str, str]:
    """Tables by the mark of their place."""
    return {
        "known subjects": _known(document["known"]),
        "random weights": _random(document["random"], document.get("deep", {})),
        "trained and untrained": _real(document["real"]),
        "halves": _halves(document["halves"]),
    }


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _verdicts(runs: Iterable[Mapping[str, Any]]) -> dict[str, list[Row]]:
    rows: dict[str, list[Row]] = {}
    for run in runs:
        for name, row in run["verdicts"].items():
            rows.setdefault(name, []).append(row)
    return dict(sorted(rows.items()))


def _numbers(rows: Sequence[Row]) -> list[str]:
    effects = [row["effect"] for row in rows if row["effect"] is not None]
    middle = f"{median(effects):+.3f}" if effects else "–"
    return [*(str(count or "·") for count in counted(rows).values()), middle]


def _known(runs: Runs) -> str:
    head = ["subject", "verdict", "right answer", *OUTCOMES, "median effect"]
    order = [subject for subject, _ in EXPECTED]
    names = sorted(runs, key=lambda name: order.index(name) if name in order else len(order))
    lines = [
        [name, verdict, EXPECTED.get((name, verdict), "–"), *_numbers(rows)]
        for name in names
        for verdict, rows in _verdicts(runs[name].values()).items()
    ]
    return _table(head, sorted(lines, key=lambda line: line[1]))


def _random(runs: Runs, deep: Runs) -> str:
    every = [run for subject in runs.values() for run in subject.values()]
    rows = _verdicts(every)
    lines = [[name, *_numbers(part)] for name, part in rows.items()]
    whole = _table([f"verdict, {len(every)} runs", *OUTCOMES, "median effect"], lines)
    kinds = [
        [
            name,
            str(len(part)),
            *(str(counted(of)["holds"]) for of in _verdicts(part.values()).values()),
        ]
        for name, part in sorted(runs.items())
    ]
    by_kind = _table(["*holds* by kind", "runs", *rows], kinds)
    words = [
        f"P0 on untrained {name}: {row['outcome']}, relative variation {row['statistic']:.2f}."
        for name, part in deep.items()
        for row in _verdicts(part.values())["P0"]
    ]
    return "\n\n".join([whole, _greens(rows), by_kind, *dict.fromkeys(words)])


def _greens(rows: Mapping[str, Sequence[Row]]) -> str:
    """How many green cards there are; P0 is a gate and has none."""
    green = {name: counted(part)["holds"] for name, part in rows.items() if name != "P0"}
    whole = sum(len(part) for name, part in rows.items() if name != "P0")
    words = ", ".join(f"{name} {count}" for name, count in green.items())
    number = sum(green.values())
    share = f"{number} of {whole} ({number / max(whole, 1):.1%})"
    return f"Green cards, without the gate P0: {share}: {words}."


def _real(runs: Runs) -> str:
    head = ["model", "verdict", "trained", "untrained", "blocks in random order"]
    lines = []
    for name, states in runs.items():
        verdicts = {state: run["verdicts"] for state, run in states.items()}
        for verdict in sorted({key for rows in verdicts.values() for key in rows}):
            mixed = [
                rows[verdict]["outcome"]
                for state, rows in verdicts.items()
                if state.startswith("blocks") and verdict in rows
            ]
            lines.append(
                [
                    name,
                    verdict,
                    _said(verdicts.get("trained", {}).get(verdict)),
                    _said(verdicts.get("untrained", {}).get(verdict)),
                    ", ".join(f"{word} {mixed.count(word)}" for word in OUTCOMES if word in mixed)
                    or "–",
                ]
            )
    return _table(head, lines)


def _said(row: Row | None) -> str:
    if row is None:
        return "–"
    words = row["outcome"] + (f" ({row['strength']})" if row["strength"] else "")
    if row["effect"] is None:
        return words
    bounds = ""
    if row["interval"] and None not in row["interval"]:
        bounds = " [{:+.3f}, {:+.3f}]".format(*row["interval"])
    return f"{words} {row['effect']:+.3f}{bounds}"


def _halves(runs: Runs) -> str:
    head = ["model", "verdict", "pairs", "same outcome", "holds against fails", "halves decided"]
    lines = []
    for name, states in runs.items():
        for verdict, pairs in sorted(_pairs(states).items()):
            decided = [word in ("holds", "fails") for pair in pairs for word in pair]
            against = sum(set(pair) == {"holds", "fails"} for pair in pairs)
            same = sum(first == second for first, second in pairs)
            lines.append(
                [name, verdict, str(len(pairs)), str(same), str(against),
                 f"{sum(decided) / len(decided):.0%}"]
            )  # fmt: skip
    return _table(head, lines)


def _pairs(states: Mapping[str, Any]) -> dict[str, list[tuple[str, str]]]:
    pairs: dict[str, list[tuple[str, str]]] = {}
    for first, second in _both(states):
        for verdict in first.keys() & second.keys():
            outcomes = (first[verdict]["outcome"], second[verdict]["outcome"])
            pairs.setdefault(verdict, []).append(outcomes)
    return pairs


def _both(states: Mapping[str, Any]) -> Iterator[tuple[Row, Row]]:
    for seed, run in states.items():
        other = states.get(f"{seed[:-1]}b")
        if seed.endswith("a") and other:
            yield run["verdicts"], other["verdicts"]
