"""What source 003 says of the barycenter of several models, beside what a run measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from flowscope.evidence import simultaneous
from flowscope.evidence.intervals import bounds_of
from flowscope.instruments.latent.stable_alignment.names import (
    APART,
    AVERAGE,
    CHILDREN,
    DOMAINS,
    PAIRED,
    PROBABILITIES,
    TRANSPORT,
)
from flowscope.instruments.latent.stable_alignment.rows import Rows, named
from flowscope.lab.statements import (
    Agreement,
    Statement,
    agreement_of,
    chance_of,
    not_compared,
)
from flowscope.report.numerals import bounds, numeral

__all__ = ["AGREEMENT"]

_WHERE = "4.1"
_HALVED = 0.5
_CLOSE = 0.005
_COLUMNS = ("domain", "members", "method", "layers", "strength", "loss", "loss_low", "loss_high",
            "divergence", "divergence_low", "divergence_high", "matched")  # fmt: skip


Ways = dict[str, dict[str, Any]]
"""Rows of a table by kind of text."""


def _ways(rows: Rows, **keys: object) -> pd.DataFrame:
    """Rows of the table ``consensus`` about the children."""
    frame = rows.table("consensus", *_COLUMNS)
    frame = frame.assign(layers=frame["layers"].fillna(""))
    for name, value in {"members": CHILDREN, **keys}.items():
        frame = pd.DataFrame(frame[frame[name] == value])
    return frame


def _strongest(rows: Rows, method: str, layers: str) -> Ways:
    frame = _ways(rows, method=method, layers=layers)
    return named(frame[frame["strength"] == frame["strength"].max()], "domain")


def _fall(apart: Ways, agreed: Ways) -> tuple[Agreement, str]:
    """Whether the divergence of predictions falls to half on every kind of text."""
    told, answers = [], list[Agreement]()
    for domain in (name for name in DOMAINS if name in apart and name in agreed):
        before, after = apart[domain], agreed[domain]
        told.append(
            f"{domain} {numeral(before['divergence'])} → {numeral(after['divergence'])} "
            f"{bounds(after['divergence_low'], after['divergence_high'])}"
        )
        below = after["divergence_high"] < _HALVED * before["divergence_low"]
        above = after["divergence_low"] > _HALVED * before["divergence_high"]
        answers.append("yes" if below else "no" if above else "cannot be told")
    agrees: Agreement = "cannot be told"
    if answers and set(answers) == {"yes"}:
        agrees = "yes"
    elif "no" in answers:
        agrees = "no"
    return agrees, ", ".join(told)


def _consensus(rows: Rows, item: str, says: str, layers: str) -> Statement:
    words: dict[str, Any] = {
        "item": item, "where": _WHERE, "says": says,
        "rule": "Jensen–Shannon divergence of the children's predictions with full strength, same "
        "tokens drawn together: yes where it is below half of that apart on every kind of text, "
        "no where it is above on one",
    }  # fmt: skip
    apart = named(_ways(rows, method=APART), "domain")
    agreed = _strongest(rows, PAIRED, layers)
    if not len(apart) or not len(agreed):
        return not_compared(**words)
    agrees, told = _fall(apart, agreed)
    return Statement(
        **words, agrees=agrees, by_chance=chance_of(2 * len(agreed)), measured=f"nats: {told}"
    )  # fmt: skip


def agree(rows: Rows) -> Statement:
    """Whether decisions agree when states are drawn together after every block."""
    return _consensus(
        rows, "consensus", "a drift towards the barycenter of latents ensures consensus of the "
        "models' decisions", "all",
    )  # fmt: skip


def early(rows: Rows) -> Statement:
    """Whether a drift in the early blocks alone is enough."""
    return _consensus(
        rows, "consensus, early layers", "it may be sufficient to enforce the drift only at the "
        "initial, diffusive layers", "early",
    )  # fmt: skip


def identity(rows: Rows) -> Statement:
    """Whether a barycenter of clouds matches each token with itself."""
    words: dict[str, Any] = {
        "item": "barycenter of clouds", "where": "4.1, eq 16",
        "says": "the Wasserstein barycenter of the latent distributions is their consensus",
        "rule": "loss with clouds drawn together after the last block less that with pairs of the "
        "same token, on the texts of both: no where its interval lies above .005 nats on a kind "
        "of text, yes where it lies below on every one",
    }  # fmt: skip
    frame = rows.table(
        "consensus_prompts", "domain", "members", "method", "layers", "strength", "prompt", "loss"
    )
    agreed = _strongest(rows, TRANSPORT, "last")
    if not len(frame) or not len(agreed):
        return not_compared(**words)
    told, answers = [], list[Agreement]()
    for domain in (name for name in DOMAINS if name in agreed):
        low, mean, high = _excess(frame, domain, float(agreed[domain]["strength"]))
        told.append(
            f"{domain} {numeral(mean)} {bounds(low, high)}, matched "
            f"{float(agreed[domain]['matched']):.1%}"
        )
        answers.append("no" if low > _CLOSE else "yes" if high < _CLOSE else "cannot be told")
    agrees: Agreement = "yes" if set(answers) == {"yes"} else "cannot be told"
    return Statement(
        **words, agrees="no" if "no" in answers else agrees, by_chance=chance_of(len(answers)),
        measured=f"nats more than pairs: {', '.join(told)}",
    )  # fmt: skip


def _excess(frame: pd.DataFrame, domain: str, strength: float) -> tuple[float, float, float]:
    """Loss of transport less that of pairs on the same texts: low end, mean, high end."""
    rows = frame[
        (frame["domain"] == domain) & (frame["members"] == CHILDREN)
        & (frame["layers"] == "last") & (frame["strength"] == strength)
    ]  # fmt: skip
    by_text = rows.pivot(index="prompt", columns="method", values="loss").dropna()
    gap = (by_text[TRANSPORT] - by_text[PAIRED]).to_numpy(float)[:, None]
    found = simultaneous(gap)
    low, high = bounds_of(found.pointwise, 1)
    return float(low[0]), float(found.points[0]), float(high[0])


def better(rows: Rows) -> Statement:
    """Whether consensus is better than the cheap ways to combine the models."""
    says = "(not in the source) models in consensus predict better than their average does"
    rule = "by the verdict L4"
    verdict = rows.verdicts.get("L4")
    if verdict is None:
        return not_compared("added: worth of consensus", _WHERE, says, rule)
    beside = []
    for method in (PROBABILITIES, AVERAGE):
        frame = _ways(rows, method=method)
        beside.append(f"{method} {', '.join(numeral(x) for x in frame['loss'])}")
    agreed = [numeral(row["loss"]) for row in _strongest(rows, PAIRED, "all").values()]
    beside.append(f"consensus after all blocks {', '.join(agreed)}")
    decided = verdict.outcome != "uninformative"
    return Statement(
        item="added: worth of consensus", where=_WHERE, says=says, rule=rule,
        measured=f"{verdict.because}; losses by kind of text: {'; '.join(beside)}",
        agrees=agreement_of(verdict.decision), by_chance=chance_of(1 if decided else 0),
    )  # fmt: skip


def isomorphic(rows: Rows) -> Statement:
    """Whether models of one function agree whatever the coordinates of their states."""
    words: dict[str, Any] = {
        "item": "isomorphic spaces", "where": "1.1",
        "says": "assume latent spaces that are semantically identical, or isomorphic",
        "rule": "is isomorphic enough? The model and itself in other coordinates of its states, "
        "drawn together: yes where the loss stays within .005 nats without an alignment, no where "
        "it rises by more",
    }  # fmt: skip
    columns = ("align", "excess", "excess_low", "excess_high", "total_variation")
    twins = named(rows.table("turned_twin", *columns), "align")
    if "none" not in twins:
        return not_compared(**words)
    none = twins["none"]
    low, high = float(none["excess_low"]), float(none["excess_high"])
    agrees: Agreement = "no" if low > _CLOSE else "yes" if high < _CLOSE else "cannot be told"
    told = f"loss {numeral(none['excess'])} {bounds(low, high)} nats more"
    if "procrustes" in twins:
        gap = float(twins["procrustes"]["total_variation"])
        told += f"; after a Procrustes alignment outputs differ by {gap:.1e} in total variation"
    return Statement(**words, agrees=agrees, by_chance=chance_of(), measured=told)


AGREEMENT: tuple[Callable[[Rows], Statement], ...] = (agree, early, identity, isomorphic, better)
"""Rows of the table of claims about several models."""
