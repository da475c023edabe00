"""Source 002: the tables decide its claims, what is missing is said to be, and a whole study."""

import numpy as np
import pandas as pd
import pytest

from flowscope.instruments.heads.diffusion_attention.statements import regime_statement_table
from flowscope.lab.study import reproduce
from flowscope.probes.heads.regime_probe import STATISTICS, RegimeProbe
from flowscope.records import Interval, Manifest, Measurement, Run, Unavailable, Verdict

IDENTITY_CLAIMS = {
    "attention": "the model's output",
    "diffusion maps": "α = 1",
    "magnetic diffusion": "magnetic gauge",
    "gauge": "Sinkhorn, forward",
    "closure": "closure",
    "experts and bridges": "bridge, Doob",
}
DENIED = {
    "two Sinkhorn operators": "Sinkhorn, backward",
    "three regimes": "no net flow at π",
}
MEASURED = {
    "normalisation only": ("attention_to_metric", "largest"),
    "no fitting": ("charge_shift", "largest"),
    "phase from D": ("phase_shift", "largest"),
    "divergence": ("negative_D", "mean"),
    "causal attention": ("first_token", "least"),
}


@pytest.fixture
def run(tmp_path):
    absent = Unavailable("synthetic")
    manifest = Manifest(
        config_given={}, config_resolved={}, seeds={}, versions={}, device="cpu",
        weight_hashes=absent, data_hashes=absent, wall_time=absent, commit=absent,
        created_at="2026-01-01T00:00:00+00:00",
    )  # fmt: skip
    made = Run.create(tmp_path / "run", manifest)
    made.write_verdicts([])
    return made


def identities(**changed):
    names = [row.identity for row in RegimeProbe(tokens=3, sweeps=1, charge=0.1).rows()]
    table = pd.DataFrame(
        {"identity": names, "formula": "=", "error": 1e-16, "scale": "1", "heads": 8,
         "bound": 1e-12, "holds": "True", "refused": 0}
    )  # fmt: skip
    for name, holds in changed.items():
        table.loc[table["identity"] == name, "holds"] = holds
    return table


def regimes(value):
    columns = dict.fromkeys(("mean", "median", "least", "largest"), value)
    return pd.DataFrame({"quantity": list(STATISTICS), "meaning": "", **columns, "readings": 8})


def verdict(decision, low=0.1, high=0.3):
    statistic = Measurement(
        name="median entropy production", values=np.asarray(0.5), unit="nat per step", n=8,
        estimator="median", dtype="float64", interval=Unavailable("none"),
    )  # fmt: skip
    interval = Interval(low=low, high=high, level=0.95, method="bootstrap")
    return Verdict(
        name="M1", claim="claim", statistic=statistic, null=Unavailable("none"), effect=0.2,
        interval=interval, decision=decision, because="because",
    )  # fmt: skip


def fate(run):
    return regime_statement_table(run).set_index("item")["agrees"]


def test_what_was_not_measured_is_said_not_to_be(run):
    table = regime_statement_table(run)
    assert set(table["agrees"]) == {"not measured"}
    assert set(table["measured"]) == {"not measured on this model"}
    assert len(table) == len(set(table["item"])) == 18


@pytest.mark.parametrize("item", IDENTITY_CLAIMS)
def test_a_claim_that_is_an_equality_stands_or_falls_with_it(run, item):
    run.write_table("identities", identities())
    assert fate(run)[item] == "yes"
    run.write_table("identities", identities(**{IDENTITY_CLAIMS[item]: "False"}))
    assert fate(run)[item] == "no"
    table = identities()
    table.loc[table["identity"] == IDENTITY_CLAIMS[item], ["heads", "holds"]] = [0, ""]
    run.write_table("identities", table)
    assert fate(run)[item] == "not measured"


@pytest.mark.parametrize("item", DENIED)
def test_a_claim_against_an_equality_falls_when_it_holds(run, item):
    run.write_table("identities", identities())
    assert fate(run)[item] == "no"
    run.write_table("identities", identities(**{DENIED[item]: "False"}))
    assert fate(run)[item] == "yes"


@pytest.mark.parametrize("item", MEASURED)
def test_a_statistic_decides(run, item):
    other = {"causal attention": (1.0, 0.5, "cannot be told")}.get(item, (0.3, 0.0, "yes"))
    against, for_, answer = other
    quantity, column = MEASURED[item]
    run.write_table("regimes", regimes(against))
    assert fate(run)[item] == "no"
    # the one number, with all others as they were, or zero where two of them count
    table = regimes(0.0 if item == "no fitting" else against)
    table.loc[table["quantity"] == quantity, column] = for_
    run.write_table("regimes", table)
    assert fate(run)[item] == answer
    table.loc[table["quantity"] == quantity, column] = np.nan
    run.write_table("regimes", table)
    assert fate(run)[item] == "not measured"


@pytest.mark.parametrize(
    ("labels", "answer"),
    [
        (["steady state"] * 3, "yes"),
        (["steady state", "undecided"], "yes"),
        (["equilibrium"] * 2, "no"),
        (["steady state", "equilibrium"], "cannot be told"),
        (["refused", "undecided"], "not measured"),
    ],
)
def test_labels_of_the_heads_decide(run, labels, answer):
    run.write_table("geometry", pd.DataFrame({"label": labels}))
    assert fate(run)["attention is a steady state"] == answer


@pytest.mark.parametrize(
    ("decision", "answer"), [("holds", "yes"), ("fails", "no"), ("abstains", "cannot be told")]
)
def test_the_verdict_on_training_is_told(run, decision, answer):
    run.write_verdicts([verdict(decision)])
    assert fate(run)["added: training and entropy production"] == answer


def test_training_is_told_without_the_scale_of_the_logits_too(run):
    run.write_verdicts([verdict("holds")])
    columns = {"flux_ratio": 1.5, "flux_ratio_random": 0.5, "exact_share": 0.8}
    geometry = pd.DataFrame({"label": ["steady state"], **columns, "exact_share_random": 0.25})
    run.write_table("geometry", geometry)
    told = regime_statement_table(run).set_index("item").loc[
        "added: training and entropy production", "measured"
    ]  # fmt: skip
    assert "flux over metric 1.50, random 0.50" in told
    assert "potential 0.80, random 0.25" in told
    run.write_table("geometry", geometry.assign(flux_ratio_random=np.nan))
    again = regime_statement_table(run).set_index("item")["measured"]
    assert again["added: training and entropy production"] == "because"


@pytest.mark.parametrize(
    ("change", "answer"),
    [
        (0.9, "yes"),
        (0.65, "cannot be told"),
        (0.5, "cannot be told"),
        (0.35, "cannot be told"),
        (0.1, "no"),
        (np.nan, "cannot be told"),
    ],
)
def test_a_dial_is_compared_with_a_random_change(run, change, answer):
    row = {
        "dial": "flux", "setting": "0", "change": change, "change_low": change - 0.1,
        "change_high": change + 0.1, "random_change": 0.5, "random_change_low": 0.4,
        "random_change_high": 0.6, "excess": change - 0.5, "excess_low": change - 0.7,
        "excess_high": change - 0.3,
    }  # fmt: skip
    run.write_table("dials", pd.DataFrame([row]))
    told = fate(run)
    assert told["added: flux dial"] == answer
    assert told["added: reversible attention"] == "not measured"


def test_a_small_study_of_the_bundled_model(tmp_path):
    done = reproduce(
        "diffusion_attention", prompts=2, tokens=12, batch=2, control_prompts=1, resamples=10,
        shown_tokens=6, dials=False, out=str(tmp_path),
        overrides=["identity_prompts=1", "identity_tokens=8", "sweeps=20"],
    )  # fmt: skip
    assert done.source == "002"
    table = done.run.read_table("identities")
    assert set(table["holds"].astype(str)) == {"True"}
    assert table["heads"].min() == 112
    answers = done.claims.set_index("item")["agrees"]
    assert set(answers[list(IDENTITY_CLAIMS)]) == {"yes"}
    assert set(answers[[*DENIED, *MEASURED]]) == {"no"}
    assert answers["added: flux dial"] == "not measured"
    assert {"geometry", "regimes", "diffusion_attention"} <= set(done.run.tables())
