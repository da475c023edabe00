"""What source 003 says of hidden states, beside what a run measured; each with its rule."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pandas as pd

from flowscope.instruments.latent.stable_alignment.agreement_statements import AGREEMENT
from flowscope.instruments.latent.stable_alignment.rows import Rows, listed
from flowscope.lab.statements import (
    Agreement,
    Statement,
    agreement_of,
    chance_of,
    not_compared,
    side_of,
    statement_rows,
)
from flowscope.records import Run
from flowscope.report.numerals import bounds, numeral

__all__ = ["alignment_statements"]

_STAYS = 0.9  # of 003's ν at one step per block


def alignment_statements(run: Run) -> pd.DataFrame:
    """Every statement of source 003 against the tables of a run."""
    rows: tuple[Callable[[Rows], Statement], ...] = (
        sphere, rises_and_falls, clusters, particles, diffuses, contracts, descends, saddles,
        *AGREEMENT,
    )  # fmt: skip
    reading = Rows(run)
    return statement_rows([partial(row, reading) for row in rows])


def sphere(rows: Rows) -> Statement:
    """Whether the length of a state plays no role."""
    words: dict[str, Any] = {
        "item": "unit sphere", "where": "1.3, footnote 4",
        "says": "vectors evolve on the unit sphere, and magnitude does not play a role",
        "rule": "all states put on one sphere after every block: no where the loss rises on every "
        "kind of text, yes where it falls or stays within .005 nats on every one",
    }  # fmt: skip
    frame = rows.table("one_sphere", "domain", "excess", "excess_low", "excess_high")
    if not len(frame):
        return not_compared(**words)
    low, high = (frame[f"excess_{end}"].to_numpy(float) for end in ("low", "high"))
    agrees: Agreement = "cannot be told"
    if (low > _UNSEEN).all():
        agrees = "no"
    elif (high < _UNSEEN).all():
        agrees = "yes"
    told = ", ".join(
        f"{row['domain']} {numeral(row['excess'])} {bounds(row['excess_low'], row['excess_high'])}"
        for row in listed(frame)
    )
    spread = numeral(float(frame["spread"].mean())) if "spread" in frame else "unknown"
    return Statement(
        **words, agrees=agrees, by_chance=chance_of(len(frame)),
        measured=f"loss {told} nats more; log lengths within a text have a standard deviation of "
        f"{spread}",
    )  # fmt: skip


_UNSEEN = 0.005  # nats per token that are not counted as a loss


def _verdict(rows: Rows, name: str, item: str, where: str, says: str) -> Statement:
    verdict = rows.verdicts.get(name)
    rule = f"by the verdict {name}"
    if verdict is None:
        return not_compared(item, where, says, rule)
    decided = verdict.outcome != "uninformative"
    return Statement(
        item=item, where=where, says=says, rule=rule, measured=verdict.because,
        agrees=agreement_of(verdict.decision), by_chance=chance_of(1 if decided else 0),
    )  # fmt: skip


def rises_and_falls(rows: Rows) -> Statement:
    """Whether the entropy of the cloud rises until some layer, then falls."""
    return _verdict(
        rows, "L1", "entropy rises, then falls", "1.4.2",
        "the entropy of the latent distribution rises until some intermediate layer, then drops",
    )  # fmt: skip


def clusters(rows: Rows) -> Statement:
    """Whether tokens are more alike after the last block than after the first."""
    words: dict[str, Any] = {
        "item": "clustering", "where": "1.4.2",
        "says": "the distribution clusters to a Dirac mass, exponentially in time",
        "rule": "1 less the mean cosine of tokens, which is 0 for a Dirac mass: yes where it falls "
        "to less than half from the first block to the last, no where it does not, by intervals",
    }  # fmt: skip
    names = ("mean_cosine", "mean_cosine_low", "mean_cosine_high")
    frame = rows.table("layers", "layer", "sample", "rank", *names)
    if not len(frame):
        return not_compared(**words)
    frame = frame[(frame["sample"] == "all") & (frame["rank"] == frame["rank"].min())]
    frame = frame.sort_values("layer").set_index("layer")
    first, last = frame.loc[1], frame.iloc[-1]
    agrees: Agreement = "cannot be told"
    if 1 - last["mean_cosine_low"] < (1 - first["mean_cosine_high"]) / 2:
        agrees = "yes"
    elif 1 - last["mean_cosine_high"] > (1 - first["mean_cosine_low"]) / 2:
        agrees = "no"
    shown = [
        f"{numeral(x['mean_cosine'])} {bounds(x[names[1]], x[names[2]])}" for x in (first, last)
    ]
    highest = frame["mean_cosine"].astype(float).idxmax()
    return Statement(
        **words, agrees=agrees, by_chance=chance_of(2),
        measured=f"mean cosine after the first block {shown[0]}, after the last {shown[1]}; "
        f"largest {numeral(float(frame['mean_cosine'].max()))} at layer {int(highest)}",
    )  # fmt: skip


def particles(rows: Rows) -> Statement:
    """Whether attention moves tokens as the idealised transformer does."""
    return _verdict(
        rows, "L3", "particles on a sphere", "1.4.2",
        "a transformer of attention and norm alone, with one value matrix, is an idealisation of "
        "the model's dynamics",
    )  # fmt: skip


def diffuses(rows: Rows) -> Statement:
    """Whether ν from squared steps is a diffusion: it has to stay when steps get shorter."""
    words: dict[str, Any] = {
        "item": "ν from squared steps", "where": "3.1",
        "says": "the diffusive behaviour ν is fitted by regressing on |x_(l+1) − x_l|²",
        "rule": "every block in two steps of half the length: a property of the model stays, that "
        "of a smooth flow halves; yes where the interval of the ratio lies above .9, no where it "
        "lies below",
    }  # fmt: skip
    frame = rows.table(
        "refinement", "steps", "diffusivity", "diffusivity_low", "diffusivity_high"
    ).sort_values("steps")
    if not {1, 2} <= set(frame["steps"].astype(int)):
        return not_compared(**words)
    steps = {int(row["steps"]): row for row in listed(frame)}
    one, two = float(steps[1]["diffusivity"]), steps[2]
    low, high = (float(two[f"diffusivity_{end}"]) / one for end in ("low", "high"))
    told = ", ".join(f"{n}: {numeral(row['diffusivity'])}" for n, row in steps.items())
    return Statement(
        **words, agrees=side_of(low, high, above=_STAYS), by_chance=chance_of(),
        measured=f"ν̂ by steps per block {told}; two steps over one "
        f"{numeral(float(two['diffusivity']) / one)} {bounds(low, high)}, smooth flow 0.5",
    )  # fmt: skip


def contracts(rows: Rows) -> Statement:
    """Whether the effective potential is convex, as exponential convergence needs."""
    words: dict[str, Any] = {
        "item": "Bakry–Émery", "where": "3.1, footnote 17",
        "says": "the free energy converges exponentially because the potential's curvature has a "
        "positive lower bound",
        "rule": "curvature of the effective potential, 5 % quantile over tokens: yes where it is "
        "above 0 in every block, no where it is below 0 in one; (ν, U) themselves are not "
        "identified by the path (errata)",
    }  # fmt: skip
    frame = rows.table(
        "rates", "layer", "sample", "lambda_min", "lambda_min_low", "lambda_min_high"
    )
    frame = frame[frame["sample"] == "all"].dropna() if len(frame) else frame
    if not len(frame):
        return not_compared(**words)
    low, high = (frame[f"lambda_min_{end}"].to_numpy(float) for end in ("low", "high"))
    agrees: Agreement = "yes" if (low > 0).all() else "no" if (high < 0).any() else "cannot be told"
    return Statement(
        **words, agrees=agrees, by_chance=chance_of(len(frame)),
        measured=f"λ_min from {numeral(float(frame['lambda_min'].min()))} to "
        f"{numeral(float(frame['lambda_min'].max()))} per block; below 0 in "
        f"{int((high < 0).sum())} of {len(frame)} blocks, above in {int((low > 0).sum())}",
    )  # fmt: skip


def descends(rows: Rows) -> Statement:
    """Whether the mean flow explains the change of entropy."""
    return _verdict(
        rows, "L2", "free energy", "3.1",
        "the latent distribution follows a Fokker–Planck equation with a potential: its drift "
        "accounts for the fall of the entropy",
    )  # fmt: skip


def saddles(rows: Rows) -> Statement:
    """Turning layers in place of saddles, which an entropy does not have."""
    words: dict[str, Any] = {
        "item": "saddles of the entropy", "where": "3.2",
        "says": "around the layer where ascent turns to descent ρ is near a saddle, ∇H(ρ) ≈ 0",
        "rule": "none: |∇H|² is the Fisher information, at least d²/tr Σ, and −H is displacement "
        "convex, so that there is no saddle at any layer; shown are the layers at which dS/dt "
        "changes sign and the directions in which the flow expands there",
    }  # fmt: skip
    frame = rows.table("turning_layers", "route", "first", "last", "kind", "expanding")
    if not rows.has("rates"):
        return not_compared(**words)
    told = [
        f"{row['kind']} between blocks {int(row['first'])} and {int(row['last'])} by "
        f"{row['route']}{_expanding(row['expanding'])}"
        for row in listed(frame)
    ]  # fmt: skip
    return Statement(
        **words, agrees="no",
        measured="; ".join(told) or "dS/dt changes its sign at no layer by its interval",
    )  # fmt: skip


def _expanding(directions: float) -> str:
    return "" if math.isnan(directions) else f", {numeral(directions)} directions expand"
