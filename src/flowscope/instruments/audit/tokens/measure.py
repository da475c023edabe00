"""Write where each token is decided: the token map, the locking depth and one path."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pandas as pd

from flowscope.instruments.audit.depth_pass import Measured
from flowscope.instruments.audit.reading import Depth, depth_of
from flowscope.instruments.audit.subject import AuditBench
from flowscope.instruments.audit.tokens import tables
from flowscope.lab.claim import Abstention
from flowscope.records import Unavailable

__all__ = ["measure"]

_SHOWN_PROMPTS, _SHOWN_POSITIONS = 4, 64


def measure(bench: AuditBench) -> None:
    """Write the tables of tokens from what the stage `variation` read."""
    depth = depth_of(bench)
    if isinstance(depth.look, Unavailable):
        raise Abstention(depth.look.reason)
    bench.put("locking_depth", tables.locking_depth_table(depth.reading.depth))
    bench.put("simplex_path", _named_path(bench, depth, depth.look.path))
    bench.put("tokens", _token_table(bench, depth.reading))


def _token_table(bench: AuditBench, reading: Measured) -> pd.DataFrame:
    prompts, word = bench.subject.prompts, bench.subject.word
    table = tables.token_table(reading.depth, _SHOWN_PROMPTS, _SHOWN_POSITIONS)
    table["token"] = ["image"] * len(table)
    if not prompts.images:
        shown = {p: prompts.at(p).shown for p in table["prompt"].unique()}
        ids = [shown[p][q] for p, q in zip(table["prompt"], table["position"], strict=True)]
        table["token"] = _words(ids, word)
    table["top_token"] = _words(table.pop("argmax"), word)
    return table


def _words(outcomes: Iterable[int], word: Callable[[int], str]) -> list[str]:
    """Outcomes as text; each is spelled once."""
    numbers = [int(outcome) for outcome in outcomes]
    spelled = {number: word(number) for number in dict.fromkeys(numbers)}
    return [spelled[number] for number in numbers]


def _named_path(bench: AuditBench, depth: Depth, path: pd.DataFrame) -> pd.DataFrame:
    for name in ("first", "second"):
        path[f"{name}_token"] = bench.subject.word(int(path.pop(f"{name}_id").iloc[0]))
    path["prompt"] = int(depth.reading.depth["prompt"][depth.row])
    path["position"] = int(depth.reading.depth["position"][depth.row])
    return path
