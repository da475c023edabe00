"""What source 004 says of coupled replicas, beside what a run measured; each with its rule.

Steps of the source are of 100; a run of S steps is given in hundredths. Whether a number agrees is
judged by its sign and order, never by its size: the source's model is another one, and its replicas
share part of their start (it gives no σ), while ours are independent unless asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pandas as pd

from flowscope.evidence import FEWEST_LAYERS
from flowscope.instruments.sync.commitment import ORDER
from flowscope.instruments.sync.internal_gap import GAP
from flowscope.instruments.sync.synchronization_gap.ranks import (
    FEWEST_MODES,
    layerwise_rank_correlation,
)
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

__all__ = ["sync_statement_table"]

_TOLD = {0.1: 63.6, 0.3: 48.0, 0.5: 46.3, 0.7: 45.6, 0.9: 45.0, 1.0: 44.2}
"""Table 1 of the source: speciation step of 100 by coupling."""

_ASSUMPTIONS = (
    ("59", "routing dominates", "|π_k| ≪ |χ_k| for leading modes"),
    ("60", "MLP blind to modes", "λ_MLP,k is nearly the same for all k"),
    ("61", "coarse modes routed", "χ_lead > χ_trail"),
    ("56", "multiplicative closure", "gains multiply along the depth"),
)

_LATE = 5 / 28
"""Share of the layers in which the source sees its gap."""

_LEVEL = 0.05


def sync_statement_table(run: Run) -> pd.DataFrame:
    """Every statement of source 004 against the tables of a run."""
    reading = _Reading(run)
    makers: list[Callable[[], Statement]] = [
        reading.speciation,
        reading.plateau,
        reading.control,
        reading.order,
        reading.lag,
        reading.natural_gap,
        reading.depth,
        reading.inversion,
        reading.collapse,
        reading.classes,
        *(partial(reading.assumption, *words) for words in _ASSUMPTIONS),
        reading.prediction,
    ]
    return statement_rows(makers)


class _Reading:
    """Looks numbers up in a run; what is not there is "not measured"."""

    def __init__(self, run: Run) -> None:
        self._run, self._known = run, set(run.tables())
        self._verdicts = {verdict.name: verdict for verdict in run.read_verdicts()}
        resolved = run.read_manifest().config_resolved
        self._steps = int(resolved["steps"])  # type: ignore[index]
        self._commitment = self._table("commitment")
        self._effects = self._table("coupling_effect")
        self._gaps = self._table("commitment_gap")
        self._order = self._table("commitment_order")
        self._internal = self._table("internal_gap")
        self._assumptions = self._table("assumptions")
        self._modes = self._table("mode_commitment")
        self._label = int(self._commitment["label"].iloc[0])

    def _table(self, name: str) -> pd.DataFrame:
        return self._run.read_table(name) if name in self._known else pd.DataFrame()

    def _share(self, steps: float) -> str:
        return f"{100 * steps / self._steps:.1f}"

    def _time(self, row: pd.Series) -> str:
        if row["status"] != "ok":
            return str(row["status"])
        low, high = self._share(row["low"]), self._share(row["high"])
        return f"{self._share(row['midpoint'])} [{low}, {high}]"

    def _features(self, *, control: bool) -> pd.DataFrame:
        table = self._commitment
        tied = table["control"].astype(bool) == control
        rows = table[(table["measure"] == "feature") & tied & (table["label"] == self._label)]
        return rows.sort_values("g")

    def _effect(self, kind: str) -> tuple[Agreement, str]:
        """Whether a difference of two commitment times is positive, and it in words."""
        table = self._effects
        if table.empty:
            return "not measured", ""
        rows = table[(table["kind"] == kind) & (table["label"] == self._label)]
        if rows.empty:
            return "not measured", ""
        row = rows.iloc[0]
        if row["status"] != "ok":
            return "cannot be told", f"{row['status']}: {row['because']}"
        low, high = float(row["low"]), float(row["high"])
        said = f"{self._share(row['difference'])} [{self._share(low)}, {self._share(high)}]"
        return side_of(low, high), said

    def speciation(self) -> Statement:
        agrees, difference = self._effect("least − largest coupling")
        rows = self._features(control=False)
        told = "; ".join(
            f"g = {row['g']:g}: {self._time(row)}"
            + (f" (004: {_TOLD[float(row['g'])]})" if float(row["g"]) in _TOLD else "")
            for _, row in rows.iterrows()
        )
        return Statement(
            item="speciation time", where="Table 1",
            says="τ_spec falls from 63.6 [50.0, 96.6] at g = .1 to 44.2 [35.6, 58.8] at g = 1, "
            "of 100 steps",
            measured=f"{told}; least less largest coupling: {difference}" if difference else told,
            agrees=agrees, by_chance=chance_of(),
            rule="the interval of τ_spec(least g) − τ_spec(largest g), pairs resampled jointly, "
            "lies above 0",
        )  # fmt: skip

    def plateau(self) -> Statement:
        says = "coupling shifts the transition, it does not change the final plateau"
        rule = (
            "agreement of features at the last intervention, least against largest coupling: no "
            "when the intervals are disjoint, yes when together they span less than a tenth of the "
            "rise"
        )
        table = self._table("agreement")
        tied = ~table["control"].astype(bool) & (table["label"] == self._label)
        rows = table[tied & (table["measure"] == "feature")]
        if rows.empty:
            return _absent("plateau", "§4.1", says, rule)
        ends = rows[rows["step"] == rows["step"].max()].sort_values("g")
        told = "; ".join(
            f"g = {r['g']:g}: {r['value']:.3f} [{r['low']:.3f}, {r['high']:.3f}]"
            for _, r in ends.iterrows()
        )
        least, most = ends.iloc[0], ends.iloc[-1]
        agrees: Agreement = "cannot be told"
        rise = float(ends["value"].max() - rows["value"].min())
        if len(ends) > 1:
            if least["high"] < most["low"] or most["high"] < least["low"]:
                agrees = "no"
            elif max(least["high"], most["high"]) - min(least["low"], most["low"]) < 0.1 * rise:
                agrees = "yes"
        return Statement(
            item="plateau", where="§4.1", says=says, rule=rule, agrees=agrees,
            measured=f"cosine when never let go: {told}", by_chance=chance_of(2),
        )  # fmt: skip

    def control(self) -> Statement:
        agrees, difference = self._effect("least coupling − control")
        rows = self._features(control=True)
        own = self._time(rows.iloc[0]) if len(rows) else ""
        return Statement(
            item="shared-noise control", where="Figs 1, 5",
            says="with shared noise at g = 0 it is at 53 of 100, earlier than at g = .1",
            measured=f"{own}; least coupling less control: {difference}" if own else "",
            agrees=agrees if own else "not measured", by_chance=chance_of(),
            rule="the interval of τ_spec(least g) − τ_spec(control) lies above 0",
        )  # fmt: skip

    def order(self) -> Statement:
        says = "coarse structure commits before fine detail at every coupling"
        rule = "intervals of the gap for all couplings together: yes if all > 0, no if one < 0"
        table = self._order
        if table.empty:
            return _absent("coarse before fine", "abstract (4), §4.1", says, rule)
        rows = table[~table["control"].astype(bool) & table["gap"].notna()]
        above, below = int((rows["gap_low"] > 0).sum()), int((rows["gap_high"] < 0).sum())
        agrees: Agreement = "cannot be told"
        measured = "no coupling has a gap"
        if len(rows):
            agrees = "no" if below else "yes" if above == len(rows) else "cannot be told"
            least = rows.sort_values("gap").iloc[0]
            measured = (
                f"above 0 at {above} of {len(rows)} couplings and below at {below}; the least is "
                f"{self._share(least['gap'])} [{self._share(least['gap_low'])}, "
                f"{self._share(least['gap_high'])}] at g = {least['g']:g}"
            )
        return Statement(
            item="coarse before fine", where="abstract (4), §4.1", says=says, agrees=agrees,
            measured=f"{measured}; {self._verdicts[ORDER.name].because}", by_chance=chance_of(),
            rule=rule,
        )  # fmt: skip

    def lag(self) -> Statement:
        rows = self._gaps[
            (self._gaps["label"] == self._label) & ~self._gaps["control"].astype(bool)
        ].sort_values("g")
        told = "; ".join(
            f"g = {r['g']:g}: "
            + (
                f"{self._share(r['gap'])} [{self._share(r['low'])}, {self._share(r['high'])}]"
                if r["status"] == "ok"
                else str(r["status"])
            )
            for _, r in rows.iterrows()
        )
        last = rows.iloc[-1]
        agrees: Agreement = "cannot be told"
        if last["status"] == "ok":
            agrees = side_of(float(last["low"]), float(last["high"]))
        return Statement(
            item="lag under strong coupling", where="§4.1, §5",
            says="the lag of fine detail stays, 39 to 41 of 100 steps, however strong the coupling",
            measured=told, agrees=agrees, by_chance=chance_of(),
            rule="its interval lies above 0 at the largest coupling (the size is the model's)",
        )  # fmt: skip

    def _blocks(self, g: float) -> pd.DataFrame:
        table = self._internal
        rows = table[(table["g"] == g) & (table["status"] == "ok") & (table["layer"] > 0)]
        centre = (rows["null_low"] + rows["null_high"]) / 2
        return rows.assign(
            seen=rows["p_all"] <= _LEVEL,
            above=rows["log_gap"] > centre,
            below=rows["log_gap"] < centre,
        )

    def _given(self) -> str:
        """What the latents show at g = 0 before any block, in words."""
        table = self._internal
        rows = table[(table["g"] == 0) & (table["layer"] == 0) & (table["status"] == "ok")]
        if rows.empty:
            return ""
        told = "beyond" if rows["p_all"].iloc[0] <= _LEVEL else "inside"
        return f"; the latents themselves: {rows['log_gap'].iloc[0]:.2f}, {told} their null"

    def natural_gap(self) -> Statement:
        verdict = self._verdicts[GAP.name]
        return Statement(
            item="gap without coupling", where="abstract (1), Fig 1",
            says="at g = 0 trailing modes keep more energy than leading ones",
            measured=verdict.because, agrees=agreement_of(verdict.decision),
            by_chance=chance_of(),
            rule=f"verdict {GAP.name}: mean over layers beyond the exchange null, the latents and "
            "shuffled weights, with the source's sign",
        )  # fmt: skip

    def depth(self) -> Statement:
        says = "the gap is strictly in the last layers, about 5 of 28"
        rule = (
            "yes when every layer above its null (over all layers) is among the last "
            f"{_LATE:.0%}, no when one is not"
        )
        if self._internal.empty:
            return _absent("depth", "abstract (3)", says, rule)
        layers = int(self._internal["layer"].max())
        late = layers - math.ceil(_LATE * layers)
        rows = self._blocks(0.0)
        seen = rows[rows["seen"] & rows["above"]]["layer"].tolist()
        agrees: Agreement = "cannot be told"
        if seen:
            agrees = "yes" if min(seen) > late else "no"
        listed = ", ".join(str(int(layer)) for layer in seen) or "none"
        return Statement(
            item="depth", where="abstract (3)", says=says, agrees=agrees, rule=rule,
            by_chance=chance_of(),
            measured=f"layers above the null at g = 0: {listed} of {layers}{self._given()}",
        )  # fmt: skip

    def inversion(self) -> Statement:
        says = "at weak coupling leading modes overtake trailing ones in the middle (layers 16–22)"
        rule = "yes when a layer between a third and four fifths of the depth lies below the null"
        if self._internal.empty:
            return _absent("inversion", "§4.2", says, rule)
        layers = int(self._internal["layer"].max())
        rows = self._blocks(0.0)
        middle = rows[(rows["layer"] > layers / 3) & (rows["layer"] <= 0.8 * layers)]
        below = middle[middle["seen"] & middle["below"]]
        above = middle[middle["seen"] & middle["above"]]
        agrees: Agreement = "yes" if len(below) else "no" if len(above) else "cannot be told"
        least = middle["log_gap"].min() if len(middle) else math.nan
        return Statement(
            item="inversion", where="§4.2", says=says, agrees=agrees, rule=rule,
            by_chance=chance_of(),
            measured=f"{len(below)} layers of the middle below the null, {len(above)} above; least "
            f"log ratio {least:.2f}",
        )  # fmt: skip

    def collapse(self) -> Statement:
        says = "the gap collapses under strong coupling, mostly by g = .3"
        rule = (
            "no when a layer is beyond the null at the largest coupling; yes when none is, one is "
            "at g = 0, and its gap is twice the smallest that every layer would have shown"
        )
        if self._internal.empty:
            return _absent("collapse", "abstract (2), Fig 10", says, rule)
        largest = float(self._internal["g"].max())
        first, rows = self._blocks(0.0), self._blocks(largest)
        free, tied = first[first["seen"]], rows[rows["seen"]]
        spread = float(rows["log_gap"].abs().median())
        agrees: Agreement = "cannot be told"
        if len(tied):
            agrees = "no"
        elif len(free) and free["log_gap"].abs().max() > 2 * rows["detectable"].max():
            agrees = "yes"
        before = first["log_gap"].abs().median()
        return Statement(
            item="collapse", where="abstract (2), Fig 10", says=says, agrees=agrees, rule=rule,
            by_chance=chance_of(),
            measured=f"layers beyond the null: {len(free)} at g = 0, {len(tied)} at g = "
            f"{largest:g}; median |log ratio| {before:.2f} and {spread:.2f} (detectable "
            f"{rows['detectable'].median():.2f})",
        )  # fmt: skip

    def classes(self) -> Statement:
        says = "the behaviour does not change with the class"
        rule = (
            "no when τ_spec of two classes at one coupling have disjoint intervals, yes when at "
            "every coupling all of them lie within a fifth of the steps"
        )
        table = self._commitment
        rows = table[(table["measure"] == "feature") & (table["status"] != "abstained")]
        if rows["label"].nunique() < 2:
            return _absent("classes", "§4.1", says, rule)
        apart, told, spans = [], [], []
        for (g, control), group in rows[rows["status"] == "ok"].groupby(["g", "control"]):
            if len(group) > 1:
                spans.append(group["high"].max() - group["low"].min())
            if group["low"].max() > group["high"].min():
                apart.append("shared noise" if control else f"g = {g:g}")
            values = ", ".join(f"{r['class']} {self._share(r['midpoint'])}"
                               for _, r in group.iterrows())  # fmt: skip
            told.append(f"{'shared noise' if control else f'g = {g:g}'}: {values}")
        near = bool(spans) and max(spans) <= 0.2 * self._steps
        return Statement(
            item="classes", where="§4.1", says=says, rule=rule,
            by_chance=chance_of(int((rows["status"] == "ok").sum())),
            agrees="no" if apart else "yes" if near else "cannot be told",
            measured=("; ".join(told) or "no transition in any class")
            + (f"; apart at {', '.join(apart)}" if apart else ""),
        )  # fmt: skip

    def assumption(self, equation: str, item: str, says: str) -> Statement:
        rows = self._assumptions
        rule = "yes when it holds in 95 % of the blocks, steps and states read, no when in half"
        rows = rows[rows["equation"].astype(str) == equation] if len(rows) else rows
        if not len(rows):
            return _absent(item, f"eq {equation}", says, rule)
        row = rows.iloc[0]
        share = float(row["share"])
        agrees: Agreement = "yes" if share >= 0.95 else "no" if share <= 0.5 else "cannot be told"
        return Statement(
            item=item, where=f"eq {equation}", says=says, agrees=agrees, rule=rule,
            measured=f"{row['quantity']}: median {row['median']:.3g} ({row['least']:.3g} to "
            f"{row['largest']:.3g}); holds in {share:.0%} of {int(row['n'])} ({row['rule']})",
        )  # fmt: skip

    def prediction(self) -> Statement:
        says = "a mode commits when its gain crosses 1"
        rule = (
            "rank correlation of predicted and measured steps at g = 0, p ≤ .05 when layers are "
            f"shifted along the depth in their order, which needs {FEWEST_LAYERS} layers"
        )
        rows = self._modes
        if rows.empty:
            return _absent("commitment of modes", "eq 51, theory §7", says, rule)
        rows = rows[rows["g"] == 0]
        both = rows[(rows["status"] == "ok") & rows["predicted"].notna()]
        if len(both) < FEWEST_MODES or both["predicted"].nunique() < 3:
            return Statement(
                item="commitment of modes", where="eq 51, theory §7", says=says, rule=rule,
                measured=f"{len(both)} of {len(rows)} modes have both a crossing and a transition",
                agrees="cannot be told",
            )  # fmt: skip
        correlation, p = layerwise_rank_correlation(rows)
        agrees: Agreement = "cannot be told"
        if p <= _LEVEL:
            agrees = "yes" if correlation > 0 else "no"
        return Statement(
            item="commitment of modes", where="eq 51, theory §7", says=says, rule=rule,
            measured=f"rank correlation {correlation:.2f} over {len(both)} of {len(rows)} modes "
            f"(p = {p:.2g} over {rows['layer'].nunique()} layers)",
            agrees=agrees, by_chance=chance_of(),
        )  # fmt: skip


def _absent(item: str, where: str, says: str, rule: str) -> Statement:
    return not_compared(item, where, says, rule, measured="not in this run")
