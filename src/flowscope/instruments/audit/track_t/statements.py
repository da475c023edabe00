"""What source 000 says of Track T, beside what a run measured; each with the rule that decides.

Where a check of the source cannot fail, the row says so.
"""

import numpy as np
import pandas as pd

from flowscope.evidence.verdicts import ends, not_measured
from flowscope.instruments.audit.adequacy import ADEQUACY
from flowscope.instruments.audit.contraction import CONTRACTION
from flowscope.instruments.audit.locking import LOCKING
from flowscope.instruments.audit.rotation import ROTATION, TRANSPORT
from flowscope.instruments.audit.variation import VARIATION
from flowscope.lab import Claim
from flowscope.lab.statements import (
    Agreement,
    Statement,
    agreement_of,
    chance_of,
    not_compared,
    numbers_of,
    side_of,
    statement_rows,
)
from flowscope.records import Run, Unavailable, Verdict

__all__ = ["track_t_statement_table"]

_NEGLIGIBLE = 0.05


def track_t_statement_table(run: Run) -> pd.DataFrame:
    """Every statement of Track T against the tables and verdicts of a run."""
    reading = _Reading(run)
    makers = [
        reading.gate,
        reading.budget_check,
        reading.skill,
        reading.prediction_one,
        reading.prediction_two,
        reading.locking,
        reading.curvature_temperature,
        reading.curvature_key_norm,
        reading.rotation,
        reading.bridge,
        reading.settling,
        reading.entropy,
        reading.temperature_mobility,
        reading.temperature_calibration,
    ]
    return statement_rows(makers)


class _Reading:
    """Looks numbers up in a run; what is not there is "not measured"."""

    def __init__(self, run: Run) -> None:
        self._run, self._tables = run, set(run.tables())
        self._verdicts = {verdict.name: verdict for verdict in run.read_verdicts()}
        self._noted = {noted.name: noted for noted in run.read_measurements()}

    def _table(self, name: str) -> pd.DataFrame | None:
        return self._run.read_table(name) if name in self._tables else None

    def _verdict(self, claim: Claim) -> tuple[Verdict, float, float, float]:
        """A verdict with its number and interval, NaN where there are none."""
        reason = "this run was made before the claim was judged"
        verdict = self._verdicts.get(claim.name) or not_measured(claim, reason)
        return verdict, *numbers_of(verdict.statistic)

    def _note(self, name: str) -> tuple[float, float, float]:
        return numbers_of(self._noted[name]) if name in self._noted else (np.nan, np.nan, np.nan)

    def gate(self) -> Statement:
        verdict, value, low, high = self._verdict(VARIATION)
        return Statement(
            item=f"{VARIATION.name} gate",
            where="N.6",
            says="S̄_L ≤ .15 with continuity residual below 1e-14; failures abstain",
            measured=f"S̄ = {value:.3f} ({low:.3f} … {high:.3f}); {verdict.because}",
            agrees=agreement_of(verdict.decision),
            rule="some segment of the depth passes; 1e-14 is out of reach and √V·eps stands for it",
        )

    def budget_check(self) -> Statement:
        says = "realised layerwise TV does not exceed the drift budget"
        rule = "no step exceeds it; a bound above .99 cannot be exceeded and is no evidence"
        table = self._table("overlay")
        if table is None:
            return not_compared(f"{ADEQUACY.name} budget", "M.6, eq 19", says, rule)
        exceeded = int(table["exceeded"].sum())
        informative = float(table["budget_informative"].mean())
        words = f"{exceeded} exceedances; the bound says something in {informative:.0%} of steps"
        if np.isnan(informative):
            words = f"{exceeded} exceedances of the restricted bound; writes cannot be told apart"
        told = exceeded == 0 and informative > 0.5
        return Statement(
            item=f"{ADEQUACY.name} budget", where="M.6, eq 19", says=says, rule=rule,
            measured=words,
            agrees="no" if exceeded else "yes" if told else "cannot be told",
        )  # fmt: skip

    def skill(self) -> Statement:
        verdict, *_ = self._verdict(ADEQUACY)
        gain, span = verdict.effect, verdict.interval
        ok = not isinstance(gain, Unavailable) and not isinstance(span, Unavailable)
        low, high = ends(span) if not isinstance(span, Unavailable) else (np.nan, np.nan)
        return Statement(
            item=f"{ADEQUACY.name} flow",
            where="Thm 5.6, 8.1",
            says="layers follow a probability-flow ODE",
            measured=f"skill beyond the references {gain:+.1%} ({low:+.1%} … {high:+.1%})"
            if ok
            else verdict.because,
            agrees=side_of(low, high) if ok else "not measured",
            rule="interval of the skill beyond shift, scale and lookup above 0",
            by_chance=chance_of(),
        )

    def prediction_one(self) -> Statement:
        value, low, high = self._note("rank correlation of forecast error and budget")
        return _by_side(
            "prediction (i)", "§1, Rem. 5.2", "the PF-ODE is accurate where Ξ_L is small",
            "rank correlation of error and Ξ", value, low, high,
        )  # fmt: skip

    def prediction_two(self) -> Statement:
        name = "rank correlation of mobility left and gain of the layers after"
        value, low, high = self._note(name)
        told = _by_side(
            "prediction (ii)", "§1, N.5", "depth has diminishing returns once mobility is gone",
            "rank correlation of mobility left and gain of later layers", value, low, high,
        )  # fmt: skip
        table = self._table("depth_loss")
        if table is None:
            return told
        free, layers = int(table["free"].sum()) - 1, int(table["layer"].max())
        words = f"{told.measured}; the last {free} of {layers} layers can go for .01 nat"
        return Statement(**{**vars(told), "measured": words})

    def locking(self) -> Statement:
        verdict, value, low, high = self._verdict(LOCKING)
        if verdict.outcome == "uninformative":
            value = np.nan
        return _by_side(
            f"{LOCKING.name} locking", "Thm 5.8, M.6", "little tail mass, little movement",
            "slope of log(TV / TV of a transplanted step) on log tail mass", value, low, high,
        )  # fmt: skip

    def curvature_temperature(self) -> Statement:
        return self._curvature("temperature", 2.0, "temperature ↑ reduces the gap 1 − κ")

    def curvature_key_norm(self) -> Statement:
        return self._curvature("key_norm", 0.5, "key-norm ↓ reduces the gap 1 − κ")

    def _curvature(self, kind: str, setting: float, says: str) -> Statement:
        rule = f"change of κ at {kind} {setting:g} against 1, interval above 0"
        table = self._table("curvature_response")
        row = pd.DataFrame()
        if table is not None:
            near = (table["setting"] - setting).abs() < 1e-9
            row = table[(table["kind"] == kind) & (table["scope"] == "all") & near]
        if row.empty:
            return not_compared(f"{CONTRACTION.name} {kind}", "M.1, M.6", says, rule)
        value, low, high = (float(row[n].iloc[0]) for n in ("change", "change_low", "change_high"))
        return Statement(
            item=f"{CONTRACTION.name} {kind}", where="M.1, M.6", says=says, rule=rule,
            agrees=side_of(low, high), by_chance=chance_of(),
            measured=f"change of κ {value:+.3f} ({low:+.3f} … {high:+.3f})",
        )  # fmt: skip

    def rotation(self) -> Statement:
        verdict, value, low, high = self._verdict(ROTATION)
        table = self._table("rotation")
        rule = f"R itself is not comparable between coordinates; R_norm below {_NEGLIGIBLE:g}"
        says = "mean R̂ over 10 central layers 1.096e-7 (3.5e-8 … 2.2e-7): bridge-aligned"
        if verdict.statistic.status != "ok" or table is None:
            return not_compared(f"{TRANSPORT.name} rotation", "8.2", says, rule)
        energy, layers = float(table["energy"].mean()), int(table["energy"].notna().sum())
        told = side_of(-high, -low, above=-_NEGLIGIBLE)
        return Statement(
            item=f"{TRANSPORT.name} rotation", where="8.2", says=says, agrees=told, rule=rule,
            by_chance=chance_of(),
            measured=f"mean R̂ {energy:.3g} over {layers} layers; R_norm {value:.2f} "
            f"({low:.2f} … {high:.2f})",
        )  # fmt: skip

    def bridge(self) -> Statement:
        says = "the path is a Schrödinger bridge if and only if R = 0"
        rule = "relative HJB residual no more than twice that of a Gaussian bridge as noisy"
        table = self._table("bridge")
        if table is None:
            return not_compared(f"{TRANSPORT.name} bridge", "Thm 7.1, 7.2", says, rule)
        by = table.set_index("data")
        own, control = (float(str(by.loc[name, "relative"])) for name in ("model", "bridge"))
        sound = set(by["status"]) == {"ok"} and set(by["score_status"]) == {"ok"}
        told: Agreement = "yes" if own <= 2 * control else "no"
        if not sound or control > 0.5:
            told = "cannot be told"
        return Statement(
            item=f"{TRANSPORT.name} bridge", where="Thm 7.1, 7.2", says=says, rule=rule,
            agrees=told,
            measured=f"HJB residual {own:.2f} of its pieces; {control:.2f} for a Gaussian bridge "
            f"between the same moments" + ("" if sound else f"; {_obstacles(by)}"),
        )  # fmt: skip

    def settling(self) -> Statement:
        says = "drifts estimated from layers converge as steps shrink"
        rule = "slope of log distance to the next n below −.5 (Euler steps of a flow: −1)"
        table = self._table("identification")
        if table is None:
            return not_compared("identification", "Assumption 5.1 (4)", says, rule)
        drift, state = (float(table[f"{n}_order"].iloc[0]) for n in ("drift", "state"))
        both = max(drift, state)
        return Statement(
            item="identification", where="Assumption 5.1 (4)", says=says, rule=rule,
            measured=f"order {drift:+.2f} of the drift, {state:+.2f} of the states; the model's "
            f"own steps are {float(table['state_distance'].iloc[0]):.1%} off the finest",
            agrees="yes" if both < -0.5 else "no",
        )  # fmt: skip

    def entropy(self) -> Statement:
        says = "entropy falls along depth, collapse is inevitable"
        rule = "yes: falls at every passing layer; no: the interval is higher at the last one"
        layers = self._table("layers")
        if layers is None or "entropy_low" not in layers:
            return not_compared("entropy", "L.1", says, rule)
        steps = layers["entropy"].diff().iloc[1:]
        inside = layers["status"].iloc[1:] == "ok"
        falling = float((steps[inside] < 0).mean()) if inside.any() else np.nan
        rows = layers[(layers["status"] == "ok") & (layers["layer"] > 0)]
        if rows.empty:
            return not_compared("entropy", "L.1", says, rule)
        first, last = rows.iloc[0], rows.iloc[-1]
        fell, rose = (
            last["entropy_high"] < first["entropy_low"],
            last["entropy_low"] > first["entropy_high"],
        )
        return Statement(
            item="entropy", where="L.1", says=says, rule=rule, by_chance=chance_of(2),
            measured=f"median entropy {first['entropy']:.2f} → {last['entropy']:.2f} nats over the "
            f"passing layers; it falls at {falling:.0%} of them",
            agrees="yes" if fell and falling == 1 else "no" if rose else "cannot be told",
        )  # fmt: skip

    def temperature_mobility(self) -> Statement:
        says = "a higher temperature slows the dynamics (mobility ∝ 1/τ)"
        rule = "mean ‖J^τ‖ of the output falls at every step of the sweep; E06: unimodal in τ"
        table = self._table("output_temperature")
        if table is None:
            return not_compared("temperature, mobility", "L.2", says, rule)
        values = table["mobility"].to_numpy()
        peak = float(table["temperature"].iloc[int(values.argmax())])
        falls = np.diff(values) < 0
        return Statement(
            item="temperature, mobility", where="L.2", says=says, rule=rule,
            measured=f"mean ‖J^τ‖ {values[0]:.3f} at τ = {table['temperature'].iloc[0]:g}, "
            f"{values.max():.3f} at {peak:g}, {values[-1]:.3f} at "
            f"{table['temperature'].iloc[-1]:g}",
            agrees="yes" if falls.all() else "no",
        )  # fmt: skip

    def temperature_calibration(self) -> Statement:
        says = "temperature scaling improves calibration"
        name = "loss gained by a temperature chosen on other prompts"
        value, low, high = self._note(name)
        table = self._table("output_temperature")
        if table is None or np.isnan(value):
            return not_compared("temperature, calibration", "L.2", says, "loss gained above 0")
        one = table.iloc[(table["temperature"] - 1).abs().argmin()]
        best = table.iloc[int(table["loss"].to_numpy().argmin())]
        return Statement(
            item="temperature, calibration", where="L.2", says=says,
            rule="loss gained on held-out prompts above 0", agrees=side_of(low, high),
            by_chance=chance_of(),
            measured=f"{value:+.4f} nats ({low:+.4f} … {high:+.4f}); ECE {one['ece']:.3f} at "
            f"τ = 1, {best['ece']:.3f} at {best['temperature']:g}",
        )  # fmt: skip


def _by_side(
    item: str, where: str, says: str, what: str, value: float, low: float, high: float
) -> Statement:
    if np.isnan(value):
        return not_compared(item, where, says, "interval above 0")
    return Statement(
        item=item, where=where, says=says, rule="interval above 0", agrees=side_of(low, high),
        by_chance=chance_of(),
        measured=f"{what} {value:+.2f} ({low:+.2f} … {high:+.2f})",
    )  # fmt: skip


def _obstacles(bridge: pd.DataFrame) -> str:
    """Why the residual is not comparable: a score that is wrong or has too few points, or c(t)."""
    scores = [
        f"score of the {name}: {str(row['score_because']).split(':')[0]}"
        for name, row in bridge.iterrows()
        if row["score_status"] != "ok"
    ]
    return "; ".join(scores or ["c(t) is not sound"])
