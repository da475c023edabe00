"""What source 000 says of images (Track I), beside what a run measured; each with its rule.

The source's model is another one (CIFAR-10), its settings are partly not given. Numbers are judged
by sign and order, and a rotational energy is not compared at all: it depends on the space.
"""

from __future__ import annotations

import pandas as pd

from flowscope.instruments.image.parity import PARITY
from flowscope.instruments.image.rotation import GRADIENT
from flowscope.instruments.image.step_sizes import DECIDING, ORDER
from flowscope.lab import Claim
from flowscope.lab.statements import (
    Agreement,
    Statement,
    agreement_of,
    chance_of,
    statement_rows,
)
from flowscope.records import Run

__all__ = ["image_statement_table"]


def image_statement_table(run: Run) -> pd.DataFrame:
    """Every statement of Track I against the tables and verdicts of a run."""
    reading = _Reading(run)
    makers = [
        reading.parity,
        reading.family,
        reading.slope,
        reading.interval,
        reading.smoothness,
        reading.rotation,
        reading.generations,
    ]
    return statement_rows(makers)


class _Reading:
    """Looks numbers up in a run; what is not there is "not measured"."""

    def __init__(self, run: Run) -> None:
        self._run, self._known = run, set(run.tables())
        self._verdicts = {verdict.name: verdict for verdict in run.read_verdicts()}

    def _table(self, name: str) -> pd.DataFrame:
        return self._run.read_table(name) if name in self._known else pd.DataFrame()

    def _judged(self, claim: Claim) -> tuple[Agreement, str]:
        verdict = self._verdicts[claim.name]
        return agreement_of(verdict.decision), verdict.because

    def parity(self) -> Statement:
        agrees, measured = self._judged(PARITY)
        return Statement(
            item="parity",
            where="8.4, Fig 2a",
            says="histograms of the probability flow and of the SDE agree over time",
            measured=measured,
            agrees=agrees,
            rule="no when the two differ by more than .02 beyond their step errors (the change "
            "when the steps are doubled) at some time, yes when that is excluded at every time; "
            "the interval covers all times together",
            by_chance=chance_of(),
        )

    def family(self) -> Statement:
        table = self._table("family")
        most = int(table["steps"].max()) // 2
        rows = table[table["steps"] == most]
        told = "; ".join(
            f"λ = {r['lam']:g}: {r['tv']:.3g} [{r['tv_low']:.3g}, {r['tv_high']:.3g}]"
            for _, r in rows.iterrows()
        )
        bound = float(rows["tv_null_high"].median())
        far = rows[rows["tv_low"] > rows["tv_null_high"]]
        within = rows[rows["tv"] <= rows["tv_null_high"]]
        agrees: Agreement = "cannot be told"
        if len(far):
            agrees = "no"
        elif len(within) == len(rows):
            agrees = "yes"
        return Statement(
            item="one family",
            where="Thm 6.2, eq 3",
            says="the flow, the SDE and everything between them have the same marginals",
            measured=f"TV of {most} steps to the finest SDE, of the finest with itself up to "
            f"{bound:.3g}: {told}",
            agrees=agrees,
            rule="yes when every member is inside the null at the most steps that all take, no "
            "when the interval of one lies beyond it",
            by_chance=chance_of(len(rows)),
        )

    def _slopes(self) -> str:
        rows = self._table("weak_error_slope")
        shown = []
        for _, r in rows[rows["observable"] == DECIDING].iterrows():
            if r["status"] != "ok":
                shown.append(f"{r['sampler']} unresolved ({r['because']})")
                continue
            shown.append(f"{r['sampler']} {r['slope']:.2f} [{r['low']:.2f}, {r['high']:.2f}]")
        first, last = int(rows["first"].iloc[0]), int(rows["last"].iloc[0])
        return f"{DECIDING}, K = {first} to {last}: {'; '.join(shown)}"

    def slope(self) -> Statement:
        agrees, _ = self._judged(ORDER)
        rows = self._table("weak_error_slope")
        read = rows[(rows["observable"] == DECIDING) & (rows["status"] == "ok")]
        return Statement(
            item="first order",
            where="8.4, Fig 2b, M.6",
            says="step-doubling differences fall with slope −1.08, 95 % interval −2.18 to −.28: "
            "near first order",
            measured=self._slopes(),
            agrees=agrees,
            rule="yes when both samplers are resolved and both intervals lie within .25 of −1, no "
            "when one lies outside; a statement about the numbers of steps, not about the model",
            by_chance=chance_of(len(read)),
        )

    def interval(self) -> Statement:
        rows = self._table("weak_error_slope")
        ok = rows[rows["status"] == "ok"]
        excluded = ok[(ok["low"] > -0.28) | (ok["high"] < -2.18)]
        agrees: Agreement = "cannot be told" if ok.empty else "no" if len(excluded) else "yes"
        told = "; ".join(
            f"{r['sampler']} {r['observable']} {r['slope']:.2f} [{r['low']:.2f}, {r['high']:.2f}]"
            for _, r in ok.iterrows()
        )
        return Statement(
            item="every observable",
            where="8.4, Fig 2b",
            says="the slope lies between −2.18 and −.28",
            measured=told or "no slope is resolved",
            agrees=agrees,
            rule="no when the interval of some resolved slope lies outside, yes when none does; "
            "the source's interval is wide enough for orders ½ and 2 alike",
            by_chance=chance_of(len(ok)),
        )

    def smoothness(self) -> Statement:
        rows = self._table("paths").set_index("sampler")
        ode, sde = rows.loc["ode"], rows.loc["sde"]
        agrees: Agreement = "cannot be told"
        if ode["variation_high"] < sde["variation_low"]:
            agrees = "yes"
        elif sde["variation_high"] < ode["variation_low"]:
            agrees = "no"
        told = "; ".join(
            f"{name} {r['variation']:.3g} [{r['variation_low']:.3g}, {r['variation_high']:.3g}]"
            for name, r in (("ode", ode), ("sde", sde))
        )
        return Statement(
            item="smoothness",
            where="M.5, Fig 8",
            says="paths of the flow vary less than those of the SDE",
            measured=f"sum of root mean square steps: {told}; the SDE's grows with the number of "
            "steps, the flow's does not",
            agrees=agrees,
            rule="by disjoint intervals",
            by_chance=chance_of(2),
        )

    def rotation(self) -> Statement:
        says = "R = .031 [.010, .054] over 20 times: low"
        rule = (
            "R is not compared, because it depends on the space and its coordinates; yes when less "
            "than .05 of the score's energy beyond its isotropic part turns in every window of log "
            "snr −3 or more, no when more turns in one than in gradients on the same states"
        )
        table = self._table("rotation")
        read = table[table["status"] == "ok"] if len(table) else table
        if read.empty:
            because = self._verdicts[GRADIENT.name].because
            return Statement(item="rotation", where="8.4, Table 4", says=says, rule=rule,
                             measured=because, agrees="not measured")  # fmt: skip
        agrees, because = self._judged(GRADIENT)
        energy = read["energy"].mean()
        return Statement(
            item="rotation",
            where="8.4, Table 4",
            says=says,
            measured=f"R = {energy:.3g} in these coordinates; {because}",
            agrees=agrees,
            rule=rule,
            by_chance=chance_of(),
        )

    @staticmethod
    def generations() -> Statement:
        return Statement(
            item="rotation and quality",
            where="abstract (iii)",
            says="lower rotational energy goes with better generations",
            measured="one model says nothing of a correlation",
            agrees="not measured",
            rule="needs several checkpoints of one model, read in the same coordinates",
        )
