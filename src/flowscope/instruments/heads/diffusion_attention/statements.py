"""What source 002 says, beside what a run measured; each with the rule that decides.

Claims that are equalities agree when every head obeys them within rounding (table ``identities``).
Claims about what the geometry is agree or not by the statistics of the regimes (table ``regimes``)
and the labels of the heads (table ``geometry``). The last rows are not claims of the source: what
this package measured beside them.
"""

from dataclasses import replace

import numpy as np
import pandas as pd

from flowscope.instruments.heads.geometry import ONE_WAY, SHARPNESS
from flowscope.lab import Claim
from flowscope.lab.statements import (
    Agreement,
    Statement,
    chance_of,
    not_compared,
    statement_rows,
)
from flowscope.records import Interval, Run

__all__ = ["regime_statement_table"]

_TOLD = 1e-9
"""Difference above which two numbers of order one are not the same in float64."""

_ADDED = "not in the source"


def regime_statement_table(run: Run) -> pd.DataFrame:
    """Every statement of source 002 against the tables and the verdict of a run."""
    reading = _Reading(run)
    makers = [
        reading.attention,
        reading.diffusion,
        reading.magnetic,
        reading.normalisation,
        reading.fitting,
        reading.phase,
        reading.divergence,
        reading.sinkhorn,
        reading.gauge,
        reading.closure,
        reading.bridges,
        reading.regimes,
        reading.steady,
        reading.causal,
        reading.training,
        reading.directions,
        reading.flux_dial,
        reading.reversible_dial,
    ]
    return statement_rows(makers)


class _Reading:
    """Looks numbers up in a run; what is not there is "not measured"."""

    def __init__(self, run: Run) -> None:
        self._run, self._tables = run, set(run.tables())
        self._verdicts = {verdict.name: verdict for verdict in run.read_verdicts()}
        self._identities = self._indexed("identities", "identity")
        self._regimes = self._indexed("regimes", "quantity")

    def _indexed(self, table: str, column: str) -> dict[str, dict[str, object]]:
        if table not in self._tables:
            return {}
        rows = self._run.read_table(table).to_dict("records")
        return {str(row[column]): {str(name): row[name] for name in row} for row in rows}

    def _number(self, quantity: str, column: str) -> float:
        row = self._regimes.get(quantity)
        return float("nan") if row is None else float(str(row[column]))

    def _holding(self, *names: str) -> tuple[str, Agreement]:
        """Errors of identities in words, and whether all of them hold."""
        rows = [self._identities.get(name) for name in names]
        known = [row for row in rows if row is not None and float(str(row["heads"])) > 0]
        if len(known) < len(names):
            return "", "not measured"
        told = ", ".join(f"{row['identity']} {float(str(row['error'])):.1e}" for row in known)
        heads = min(int(float(str(row["heads"]))) for row in known)
        refused = sum(int(float(str(row["refused"]))) for row in known)
        left = f", {refused} readings refused" if refused else ""
        agrees: Agreement = "yes" if all(str(row["holds"]) == "True" for row in known) else "no"
        return f"largest error on {heads} heads: {told}{left}", agrees

    def _equality(
        self, item: str, where: str, says: str, names: tuple[str, ...], more: str = ""
    ) -> Statement:
        told, agrees = self._holding(*names)
        rule = "every head within the rounding of its logits (table identities)"
        if agrees == "not measured":
            return not_compared(item, where, says, rule)
        measured = f"{told}; {more}" if more else told
        return Statement(
            item=item, where=where, says=says, measured=measured, agrees=agrees, rule=rule
        )

    def attention(self) -> Statement:
        return self._equality(
            "attention", "abstract", "the bidivergence, exponentiated and normalised, is attention",
            ("attention", "the model's attention", "the model's output"),
            "d→_ij = W_ii − W_ij (E55), the model's own mask and β",
        )  # fmt: skip

    def diffusion(self) -> Statement:
        apart = self._number("attention_to_diffusion", "median")
        return self._equality(
            "diffusion maps", "abstract", "… and yields diffusion maps",
            ("product of experts", "α = ½", "α = 1"),
            f"softmax(−βD) is another kernel than attention: median TV {apart:.2f}",
        )  # fmt: skip

    def magnetic(self) -> Statement:
        return self._equality(
            "magnetic diffusion", "abstract", "… and magnetic diffusion",
            ("magnetic at charge 0", "magnetic L ⪰ 0", "magnetic gauge"),
            "phase outside the normalisation (E56)",
        )  # fmt: skip

    def normalisation(self) -> Statement:
        item, where = "normalisation only", "page, “if this is right”"
        says = "one regime becomes another by changing only the normalisation step"
        rule = (
            "no when attention and softmax(−½βD), the same exponent made symmetric, differ by more "
            f"than {_TOLD:g}: the exponent changes too"
        )
        middle, most = (
            self._number("attention_to_metric", column) for column in ("median", "largest")
        )
        if np.isnan(most):
            return not_compared(item, where, says, rule)
        return Statement(
            item=item, where=where, says=says, rule=rule, agrees="no" if most > _TOLD else "yes",
            measured=f"median TV of attention and softmax(−½βD) {middle:.2f}: what the "
            "antisymmetric part of the scores is worth",
        )  # fmt: skip

    def fitting(self) -> Statement:
        item, where = "no fitting", "page, “what would settle it”"
        says = "all regimes follow from the scores without rescaling or tuning"
        rule = (
            f"no when α or the charge, which no score fixes, move the result by {_TOLD:g} or more"
        )
        alpha, charge = (self._number(name, "median") for name in ("alpha_shift", "charge_shift"))
        # numpy's maximum keeps NaN: one of them missing is not measured
        moved = np.max([self._number(name, "largest") for name in ("alpha_shift", "charge_shift")])
        if np.isnan(moved):
            return not_compared(item, where, says, rule)
        return Statement(
            item=item, where=where, says=says, rule=rule, agrees="no" if moved > _TOLD else "yes",
            measured="β is the model's own; α from 0 to 1 moves the diffusion map by a median TV "
            f"of {alpha:.2f}, twice the charge moves an eigenvalue by {charge:.3f}",
        )  # fmt: skip

    def phase(self) -> Statement:
        item, where = "phase from D", "page, response to a referee (E56)"
        says = "the phase e^{iθ} emerges from the same D"
        rule = f"no when spectra with and without flux, D the same, differ by more than {_TOLD:g}"
        middle, most = (self._number("phase_shift", column) for column in ("median", "largest"))
        if np.isnan(most):
            return not_compared(item, where, says, rule)
        return Statement(
            item=item, where=where, says=says, rule=rule, agrees="no" if most > _TOLD else "yes",
            measured="D is symmetric and holds no phase: with the flux of the head an eigenvalue "
            f"moves by {middle:.3f} (median over heads), {most:.2f} at most",
        )  # fmt: skip

    def divergence(self) -> Statement:
        item, where, says = "divergence", "abstract (E54)", "D is a divergence"
        rule = "yes when no pair of no head has D < 0 beyond rounding; no when some has"
        share = self._number("negative_D", "mean")
        if np.isnan(share):
            return not_compared(item, where, says, rule)
        pairs = self._number("negative_pairs", "median")
        up, down = (self._number(f"{s}_directions", "median") for s in ("positive", "negative"))
        return Statement(
            item=item, where=where, says=says, rule=rule, agrees="no" if share > 0 else "yes",
            measured=f"D < 0 somewhere on {share:.1%} of heads and prompts, in {pairs:.0%} of the "
            f"pairs (median); a squared distance in {self._number('euclidean_D', 'mean'):.0%}; "
            f"signature {up:.0f} positive, {down:.0f} negative (medians)",
        )  # fmt: skip

    def sinkhorn(self) -> Statement:
        item, where = "two Sinkhorn operators", "eqs 36–37 (E53)"
        says = "Sinkhorn(−βd→) and Sinkhorn(−βd←) are neither equal nor transposes of each other"
        rule = "no when they are transposes within rounding, at equal steps, on every head"
        told, holds = self._holding("Sinkhorn, backward")
        if holds == "not measured":
            return not_compared(item, where, says, rule)
        apart, gap = (
            self._number(name, "median") for name in ("sinkhorn_asymmetry", "sinkhorn_gap")
        )
        worst, left = (
            self._number(name, "largest") for name in ("sinkhorn_gap", "sinkhorn_columns")
        )
        return Statement(
            item=item, where=where, says=says, rule=rule, agrees="no" if holds == "yes" else "yes",
            measured=f"transposes, {told}; not equal: median TV {apart:.2f}; with rows first in "
            f"both they are in the limit: {gap:.1e} off (median), {worst:.1e} at most, the steps "
            f"having left columns up to {left:.1e} off",
        )  # fmt: skip

    def gauge(self) -> Statement:
        left = self._number("sinkhorn_columns", "median")
        return self._equality(
            "gauge", "Lemma B.4", "Sinkhorn(z + u + v) = Sinkhorn(z)", ("Sinkhorn, forward",),
            f"row constants, at any count of steps; these left column sums {left:.1e} off (median)",
        )  # fmt: skip

    def closure(self) -> Statement:
        return self._equality(
            "closure", "Lemma B.5, Cor. B.6", "products of bistochastic kernels are bistochastic",
            ("closure",),
        )  # fmt: skip

    def bridges(self) -> Statement:
        return self._equality(
            "experts and bridges", "abstract, App. B.4",
            "products of experts and Schrödinger bridges Π = u⁺Pu⁻ connect the regimes",
            ("product of experts", "bridge, marginals", "bridge, Doob"),
        )  # fmt: skip

    def regimes(self) -> Statement:
        item, where = "three regimes", "eq 17 (E58)"
        says = "currents sort operators into equilibrium, steady state and driven"
        rule = (
            "no when no head has a net flow at its stationary law: the third regime is empty there"
        )
        told, holds = self._holding("no net flow at π")
        if holds == "not measured":
            return not_compared(item, where, says, rule)
        moved = self._number("displacement", "median")
        return Statement(
            item=item, where=where, says=says, rule=rule, agrees="no" if holds == "yes" else "yes",
            measured=f"net flow at π: {told}; at the uniform law one step moves {moved:.2f} of the "
            "mass (median), so “driven” is said of a law, not of an operator",
        )  # fmt: skip

    def steady(self) -> Statement:
        item, where = "attention is a steady state", "eq 17"
        says = "asymmetric scores keep attention out of equilibrium"
        rule = (
            "yes when every head with a label is a steady state (a walk as long as the text can be "
            "told from its reversal), no when none is; labels by intervals that cover all heads"
        )
        table = self._run.read_table("geometry") if "geometry" in self._tables else pd.DataFrame()
        # Runs of earlier versions have labels of single heads only.
        labels = next((table[n] for n in ("label_joint", "label") if n in table), None)
        told = [] if labels is None else [n for n in labels if n in ("steady state", "equilibrium")]
        if labels is None or not told:
            return not_compared(item, where, says, rule)
        steady = told.count("steady state")
        counted = ", ".join(f"{n} {label}" for label, n in labels.value_counts().items())
        agrees: Agreement = (
            "yes" if steady == len(told) else "no" if steady == 0 else "cannot be told"
        )
        return Statement(
            item=item, where=where, says=says, rule=rule, agrees=agrees,
            measured=f"{counted} (of {len(labels)} heads, mask taken off)", by_chance=chance_of(),
        )  # fmt: skip

    def causal(self) -> Statement:
        item, where = "causal attention", "eq 17 (E57)"
        says = "attention has currents and a stationary law"
        rule = f"no when all walks of the model's own attention, but {_TOLD:g}, end at token 0"
        least = self._number("first_token", "least")
        if np.isnan(least):
            return not_compared(item, where, says, rule)
        absorbed = least >= 1 - _TOLD
        return Statement(
            item=item, where=where, says=says, rule=rule,
            agrees="no" if absorbed else "cannot be told",
            measured=f"under its mask at least {least:.6f} of the walks of each head end at token "
            "0: a point mass, no current; the rows above take the mask off",
        )  # fmt: skip

    def training(self) -> Statement:
        told = self._judged(
            SHARPNESS, "added: training and entropy production",
            "trained heads are more directed than random attention that is as sharp",
        )  # fmt: skip
        return replace(told, measured=told.measured + self._without_scale())

    def directions(self) -> Statement:
        return self._judged(
            ONE_WAY, "added: the two directions",
            "a token that is looked at looks back less than chance",
        )  # fmt: skip

    def _judged(self, claim: Claim, item: str, says: str) -> Statement:
        rule = (
            "yes or no when the interval of the log ratio lies on one side of 0 and the ratio is "
            f"more than negligible (verdict {claim.name})"
        )
        verdict = self._verdicts.get(claim.name)
        if verdict is None or verdict.statistic.status != "ok":
            return not_compared(item, _ADDED, says, rule)
        known = isinstance(verdict.interval, Interval)
        sides: dict[str, Agreement] = {"holds": "yes", "fails": "no"}
        return Statement(
            item=item, where=_ADDED, says=says, rule=rule, measured=verdict.because,
            by_chance=chance_of(),
            agrees=sides.get(verdict.decision, "cannot be told" if known else "not measured"),
        )  # fmt: skip

    def _without_scale(self) -> str:
        """What training does to the sectors of the scores, whatever the size of the logits."""
        table = self._run.read_table("geometry") if "geometry" in self._tables else pd.DataFrame()
        names = [
            f"{name}{end}" for name in ("flux_ratio", "exact_share") for end in ("", "_random")
        ]
        if not set(names) <= set(table) or bool(table[names].isna().all().any()):
            return ""
        flux, flux_random, exact, exact_random = (float(table[name].median()) for name in names)
        return (
            f". Medians that no scale of the logits moves: flux over metric {flux:.2f}, random "
            f"{flux_random:.2f}; share of the antisymmetric part that has a potential {exact:.2f}, "
            f"random {exact_random:.2f}"
        )

    def flux_dial(self) -> Statement:
        return self._dial(
            "added: flux dial", "taking the flux out costs more than a random change of its size",
            ("flux", "0"),
        )  # fmt: skip

    def reversible_dial(self) -> Statement:
        return self._dial(
            "added: reversible attention",
            "softmax(−½βD) in place of attention costs more than a random change of its size",
            ("square", "a=0, b=1"),
        )  # fmt: skip

    def _dial(self, item: str, says: str, dial: tuple[str, str]) -> Statement:
        rule = "interval of the difference of the two changes, within prompts, above 0 (dials)"
        row = pd.DataFrame()
        if "dials" in self._tables:
            table = self._run.read_table("dials").astype({"setting": str})
            same = table["setting"].isin([dial[1], f"{dial[1]}.0"])  # read back as a number
            row = table[(table["dial"] == dial[0]) & same]
        if row.empty:
            return not_compared(item, _ADDED, says, rule)
        names = ("change", "change_low", "change_high")
        own, low, high = (float(row[name].iloc[0]) for name in names)
        random, under, over = (float(row[f"random_{name}"].iloc[0]) for name in names)
        more = tuple(float(row[f"excess{end}"].iloc[0]) for end in ("_low", "_high"))
        agrees: Agreement = "yes" if more[0] > 0 else "no" if more[1] < 0 else "cannot be told"
        return Statement(
            item=item, where=_ADDED, says=says, rule=rule, agrees=agrees, by_chance=chance_of(),
            measured=f"loss {own:+.3f} nats ({low:+.3f} … {high:+.3f}); random change of equal "
            f"norm {random:+.3f} ({under:+.3f} … {over:+.3f})",
        )  # fmt: skip
