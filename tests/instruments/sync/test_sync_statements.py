"""Source 004: planted tables drive every statement to each answer it can give."""

import math

import numpy as np
import pandas as pd
import pytest

from flowscope.evidence import not_measured
from flowscope.instruments.sync.commitment import ORDER
from flowscope.instruments.sync.internal_gap import GAP
from flowscope.instruments.sync.internal_gap.judge import judge_internal_gap
from flowscope.instruments.sync.synchronization_gap.statements import sync_statement_table
from flowscope.lab.claim import CLAIMS_TABLE
from flowscope.records import Manifest, Run, Unavailable

COLUMNS = list(CLAIMS_TABLE.schema)
ITEMS = {
    "speciation time", "plateau", "shared-noise control", "coarse before fine",
    "lag under strong coupling", "gap without coupling", "depth", "inversion", "collapse",
    "classes", "routing dominates", "MLP blind to modes", "coarse modes routed",
    "multiplicative closure", "commitment of modes",
}  # fmt: skip
EQUATIONS = {
    "routing dominates": "59",
    "MLP blind to modes": "60",
    "coarse modes routed": "61",
    "multiplicative closure": "56",
}
G = (0.1, 0.5, 1.0)


def commitment(labels=(0,), *, status="ok", couplings=G):
    """Every class, coupling and control with a transition at 8 [7, 9] of 16 steps."""
    rows = []
    for label in labels:
        for g, control in [*((g, False) for g in couplings), (0.0, True)]:
            row = {
                "label": label, "class": f"class {label}", "g": g, "control": control,
                "midpoint": 8.0, "low": 7.0, "high": 9.0, "amplitude": 0.5, "amplitude_low": 0.4,
                "amplitude_high": 0.6, "width": 1.0, "n": 8, "status": status, "because": "why",
            }  # fmt: skip
            rows += [row | {"measure": m} for m in ("feature", "coarse", "fine")]
    return pd.DataFrame(rows)


def agreement(ends=None, couplings=G):
    """Features that rise from .5 to .9 ± .01, or to what is given, at the last intervention."""
    rows = []
    for g in couplings:
        value, low, high = (ends or {}).get(g, (0.9, 0.89, 0.91))
        for step, (v, a, b) in ((0, (0.5, 0.45, 0.55)), (16, (value, low, high))):
            rows.append(
                {"label": 0, "class": "class 0", "g": g, "control": False, "measure": "feature",
                 "step": step, "value": v, "low": a, "high": b, "n": 8, "fit": v}
            )  # fmt: skip
    return pd.DataFrame(rows)


def effects(low=1.0, high=3.0, status="ok"):
    kinds = ["least − largest coupling", "least coupling − control"]
    return pd.DataFrame(
        {"label": 0, "class": "class 0", "kind": kinds, "difference": (low + high) / 2,
         "low": low, "high": high, "n": 8, "status": status, "because": "why"}
    )  # fmt: skip


def gaps(low=1.0, high=3.0, status="ok", couplings=G):
    rows = [(g, False) for g in couplings] + [(0.0, True)]
    return pd.DataFrame(
        {"label": 0, "class": "class 0", "g": [g for g, _ in rows],
         "control": [c for _, c in rows], "gap": (low + high) / 2, "low": low, "high": high,
         "n": 8, "status": status, "because": ""}
    )  # fmt: skip


def internal(seen=(), *, tied=(), layers=28, sign=1.0, size=2.0, status="ok"):
    """Layers beyond the null at g = 0 and at the largest coupling."""
    rows = []
    for g, beyond in ((0.0, seen), (0.5, ()), (1.0, tied)):
        for layer in range(layers + 1):
            far = layer in beyond
            rows.append(
                {"g": g, "layer": layer, "step": 8, "naive": 1.0,
                 "log_gap": sign * size if far else 0.05, "low": 0.0, "high": 0.1,
                 "null_low": -0.5, "null_high": 0.5, "p": 0.5, "detectable": 0.7, "band": 2,
                 "n": 16, "status": status, "because": "", "p_all": 0.005 if far else 0.6}
            )  # fmt: skip
    return pd.DataFrame(rows)


def assumptions(share):
    return pd.DataFrame(
        {"equation": list(EQUATIONS.values()), "quantity": "ratio", "median": 0.5, "least": 0.1,
         "largest": 0.9, "share": share, "n": 100, "rule": "below 1"}
    )  # fmt: skip


def modes(sign=1.0, count=12, status="ok"):
    """One mode a layer, no trend; what is predicted comes true, or its opposite."""
    steps = np.array([3, 9, 1, 7, 11, 0, 5, 10, 2, 8, 4, 6][:count], dtype=float)
    return pd.DataFrame(
        {"g": 0.0, "layer": np.arange(count) + 1, "mode": 1, "predicted": steps,
         "measured": 20 + sign * steps, "status": status, "because": ""}
    )  # fmt: skip


def ordered(table):
    """The same gaps as the table of the order has them."""
    names = {"low": "gap_low", "high": "gap_high"}
    return table.rename(columns=names).assign(excess=0.0)


def layer_arrays(free):
    """Arrays of the internal gap: the log ratios of the table, with draws that spread by .02."""
    rows = free[free["status"] == "ok"]
    rng = np.random.default_rng(0)
    size = len(rows)
    return {
        "layer": rows["layer"].to_numpy(), "observed": rows["log_gap"].to_numpy(),
        "draws": 0.02 * rng.standard_normal((size, 199)),
        "left_out": 0.001 * rng.standard_normal((size, 16)),
        "twin_observed": 0.005 * rng.standard_normal((3, size)),
        "twin_draws": 0.02 * rng.standard_normal((3, size, 199)),
        "twin_left_out": 0.001 * rng.standard_normal((3, size, 16)),
    }  # fmt: skip


@pytest.fixture
def said(tmp_path):
    """The statements of a run with these tables: what was measured and whether it agrees."""
    absent = Unavailable("synthetic")
    manifest = Manifest(
        config_given={}, config_resolved={"command": "sync", "steps": 16}, seeds={}, versions={},
        device="cpu", weight_hashes=absent, data_hashes=absent, wall_time=absent, commit=absent,
        created_at="2026-01-01T00:00:00+00:00",
    )  # fmt: skip
    made = []

    def table(**tables):
        run = Run.create(tmp_path / f"run{len(made)}", manifest)
        made.append(run)
        given = {"commitment": commitment(), "commitment_gap": gaps(), "agreement": agreement()}
        given |= tables
        given |= {"commitment_order": ordered(given["commitment_gap"])}
        for name, content in given.items():
            run.write_table(name, content)
        free = given.get("internal_gap", internal(status="abstained"))
        free = free[free["g"] == 0]
        verdicts = [
            not_measured(ORDER, "it is planted"),
            judge_internal_gap(layer_arrays(free), free, claim=GAP, seed=0),
        ]
        run.write_verdicts(verdicts)
        return sync_statement_table(run).set_index("item")

    return table


def test_every_claim_is_there_once_with_its_rule(said):
    table = said().reset_index()
    assert list(table.columns) == COLUMNS
    assert set(table["item"]) == ITEMS
    assert len(table) == len(ITEMS)
    assert (table["rule"].str.len() > 10).all()


def test_what_was_not_measured_is_said_not_to_be(said):
    answers = said()["agrees"]
    silent = {*EQUATIONS, "speciation time", "shared-noise control", "depth", "inversion",
              "collapse", "classes", "commitment of modes"}  # fmt: skip
    assert {item for item in ITEMS if answers[item] == "not measured"} == silent


@pytest.mark.parametrize("item", ["speciation time", "shared-noise control"])
@pytest.mark.parametrize(
    ("low", "high", "answer"), [(1, 3, "yes"), (-3, -1, "no"), (-1, 3, "cannot be told")]
)
def test_a_difference_of_times_is_decided_by_its_interval(said, item, low, high, answer):
    table = said(coupling_effect=effects(low, high))
    assert table["agrees"][item] == answer
    told = f"{100 * (low + high) / 32:.1f} [{100 * low / 16:.1f}, {100 * high / 16:.1f}]"
    assert told in table["measured"][item]


@pytest.mark.parametrize("item", ["speciation time", "shared-noise control"])
def test_a_difference_without_transitions_cannot_be_told(said, item):
    table = said(coupling_effect=effects(math.nan, math.nan, status="no transition"))
    assert table["agrees"][item] == "cannot be told"
    assert "no transition: why" in table["measured"][item]
    none = effects().iloc[:0]
    assert said(coupling_effect=none)["agrees"][item] == "not measured"


def test_each_of_the_two_differences_has_its_own_row(said):
    mixed = effects()
    mixed.loc[mixed["kind"].str.contains("control"), ["difference", "low", "high"]] = [-2, -3, -1]
    answers = said(coupling_effect=mixed)["agrees"]
    assert (answers["speciation time"], answers["shared-noise control"]) == ("yes", "no")


def test_times_are_told_in_hundredths_beside_those_of_the_source(said):
    told = said(coupling_effect=effects())["measured"]["speciation time"]
    assert "g = 0.1: 50.0 [43.8, 56.2] (004: 63.6)" in told
    assert "g = 1: 50.0 [43.8, 56.2] (004: 44.2)" in told
    told = said(commitment=commitment(status="no transition"))["measured"]["speciation time"]
    assert told.startswith("g = 0.1: no transition")


def test_the_plateau_is_the_agreement_when_never_let_go(said):
    assert said()["agrees"]["plateau"] == "yes"
    for g in (0.1, 1.0):
        table = said(agreement=agreement({g: (0.95, 0.94, 0.96)}))
        assert table["agrees"]["plateau"] == "no"
    middle = agreement({0.5: (0.95, 0.94, 0.96)})
    assert said(agreement=middle)["agrees"]["plateau"] == "yes"
    wide = agreement({1.0: (0.9, 0.8, 1.0)})
    assert said(agreement=wide)["agrees"]["plateau"] == "cannot be told"
    assert said(agreement=agreement(couplings=(0.5,)))["agrees"]["plateau"] == "cannot be told"
    none = agreement()
    none["measure"] = "coarse"
    assert said(agreement=none)["agrees"]["plateau"] == "not measured"


def test_the_least_and_largest_coupling_are_found_in_any_order(said):
    table = agreement({0.5: (0.95, 0.94, 0.96)}, couplings=(0.5, 1.0, 0.1))
    assert said(agreement=table)["agrees"]["plateau"] == "yes"
    late = gaps(couplings=(1.0, 0.5, 0.1))
    late.loc[late["g"] == 1.0, ["gap", "low", "high"]] = [-2, -3, -1]
    assert said(commitment_gap=late)["agrees"]["lag under strong coupling"] == "no"


@pytest.mark.parametrize(
    ("low", "high", "answer"), [(1, 3, "yes"), (-3, -1, "no"), (-1, 3, "cannot be told")]
)
def test_the_order_and_the_lag_follow_the_gap(said, low, high, answer):
    table = said(commitment_gap=gaps(low, high))
    assert table["agrees"]["coarse before fine"] == answer
    assert table["agrees"]["lag under strong coupling"] == answer


def test_the_lag_is_judged_at_the_largest_coupling_alone(said):
    late = gaps()
    late.loc[late["g"] == 1.0, ["low", "high"]] = [-3.0, -1.0]
    answers = said(commitment_gap=late)["agrees"]
    assert answers["lag under strong coupling"] == answers["coarse before fine"] == "no"
    early = gaps()
    early.loc[early["g"] == 0.1, ["low", "high"]] = [-3.0, -1.0]
    answers = said(commitment_gap=early)["agrees"]
    assert answers["lag under strong coupling"] == "yes"
    assert answers["coarse before fine"] == "no"
    none = gaps(math.nan, math.nan, status="no transition")
    answers = said(commitment_gap=none)["agrees"]
    assert answers["lag under strong coupling"] == "cannot be told"
    assert answers["coarse before fine"] == "cannot be told"


@pytest.mark.parametrize(
    ("seen", "sign", "answer"),
    [(range(20, 27), 1, "yes"), (range(20, 27), -1, "no"), ((), 1, "cannot be told")],
)
def test_the_gap_without_coupling_has_the_sign_of_the_source(said, seen, sign, answer):
    table = said(internal_gap=internal(seen, sign=sign))
    assert table["agrees"]["gap without coupling"] == answer


@pytest.mark.parametrize(
    ("seen", "answer"),
    [((24, 28), "yes"), ((23,), "no"), ((3, 28), "no"), ((), "cannot be told")],
)
def test_the_depth_of_the_gap_is_that_of_its_first_layer(said, seen, answer):
    """Five of 28 layers are late: 24 to 28."""
    table = said(internal_gap=internal(seen))
    assert table["agrees"]["depth"] == answer
    assert f"{', '.join(map(str, seen)) or 'none'} of 28" in table["measured"]["depth"]


@pytest.mark.parametrize(
    ("seen", "sign", "answer"),
    [
        ((16, 22), -1, "yes"),
        ((16, 22), 1, "no"),
        ((3, 27), -1, "cannot be told"),
        ((), 1, "cannot be told"),
    ],
)
def test_an_inversion_lies_in_the_middle_and_below(said, seen, sign, answer):
    table = said(internal_gap=internal(seen, sign=sign))
    assert table["agrees"]["inversion"] == answer


def test_an_inversion_is_below_the_null_not_below_zero(said):
    table = internal((16,), sign=1, size=0.2)
    table[["null_low", "null_high"]] = [0.6, 1.0]
    assert said(internal_gap=table)["agrees"]["inversion"] == "yes"


@pytest.mark.parametrize(
    ("seen", "tied", "size", "answer"),
    [
        ((26,), (), 2.0, "yes"),
        ((26,), (5,), 2.0, "no"),
        ((), (5,), 2.0, "no"),
        ((), (), 2.0, "cannot be told"),
        ((26,), (), 1.3, "cannot be told"),  # not twice what could have been seen
    ],
)
def test_a_gap_collapses_when_it_was_there_and_could_still_be_seen(
    said, seen, tied, size, answer
):  # fmt: skip
    table = said(internal_gap=internal(seen, tied=tied, size=size))
    assert table["agrees"]["collapse"] == answer


def test_signs_are_kept_apart_and_the_latents_are_told(said):
    """An inversion in the middle is no gap in the middle; latents are no layer."""
    table = internal((26,))
    inverted = (table["g"] == 0) & (table["layer"] == 14)
    table.loc[inverted, ["log_gap", "p_all"]] = [-2.0, 0.005]
    found = said(internal_gap=table)
    assert found["agrees"]["depth"] == "yes"
    assert found["agrees"]["inversion"] == "yes"
    assert found["agrees"]["gap without coupling"] == "cannot be told"
    assert "the latents themselves: 0.05, inside their null" in found["measured"]["depth"]
    given = internal((0, 26))
    found = said(internal_gap=given)
    assert found["agrees"]["depth"] == "yes"
    assert "2.00, beyond their null" in found["measured"]["depth"]
    assert "the latents alone: +2.000" in found["measured"]["gap without coupling"]


def test_layers_that_abstained_tell_nothing(said):
    answers = said(internal_gap=internal((26,), tied=(26,), status="abstained"))["agrees"]
    for item in ("depth", "inversion", "collapse", "gap without coupling"):
        assert answers[item] == "cannot be told"


def test_classes_are_compared_at_each_coupling(said):
    two = commitment(labels=(0, 8))
    assert said(commitment=two)["agrees"]["classes"] == "yes"
    apart = (two["label"] == 8) & (two["g"] == 0.5) & (two["measure"] == "feature")
    two.loc[apart, ["midpoint", "low", "high"]] = [11.0, 10.0, 12.0]
    table = said(commitment=two)
    assert table["agrees"]["classes"] == "no"
    assert "apart at g = 0.5" in table["measured"]["classes"]
    two.loc[apart, "status"] = "no transition"
    assert said(commitment=two)["agrees"]["classes"] == "yes"
    wide = commitment(labels=(0, 8))
    wide["high"] = 12.0  # overlap alone is no agreement
    assert said(commitment=wide)["agrees"]["classes"] == "cannot be told"


def test_classes_that_never_meet_at_one_coupling_cannot_be_compared(said):
    two = commitment(labels=(0, 8))
    even = (two["label"] == 0) == two["g"].isin([0.1, 0.5])
    two.loc[~even, "status"] = "no transition"
    assert said(commitment=two)["agrees"]["classes"] == "cannot be told"
    none = commitment(labels=(0, 8), status="no transition")
    assert said(commitment=none)["agrees"]["classes"] == "cannot be told"


@pytest.mark.parametrize("item", EQUATIONS)
@pytest.mark.parametrize(("share", "answer"), [(0.97, "yes"), (0.3, "no"), (0.8, "cannot be told")])
def test_an_assumption_holds_in_a_share_of_what_was_read(said, item, share, answer):
    table = said(assumptions=assumptions(share))
    assert table["agrees"][item] == answer
    assert f"holds in {share:.0%} of 100" in table["measured"][item]
    others = assumptions(share)
    others = others[others["equation"] != EQUATIONS[item]].reset_index(drop=True)
    assert said(assumptions=others)["agrees"][item] == "not measured"


def test_the_commitment_of_modes_follows_the_prediction(said):
    item = "commitment of modes"
    assert said(mode_commitment=modes())["agrees"][item] == "yes"
    assert said(mode_commitment=modes(-1))["agrees"][item] == "no"
    scattered = modes()
    scattered["measured"] = [1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0]
    assert said(mode_commitment=scattered)["agrees"][item] == "cannot be told"
    table = said(mode_commitment=modes(count=5))
    assert table["agrees"][item] == "cannot be told"
    assert "5 of 5 modes" in table["measured"][item]
    none = modes(status="no transition")
    assert said(mode_commitment=none)["agrees"][item] == "cannot be told"
    few = said(mode_commitment=modes(count=9))
    assert few["agrees"][item] == "cannot be told", "9 layers have 18 shifts: p is at least 1/18"
    assert "over 9 layers" in few["measured"][item]
    trend = modes().sort_values("predicted", ignore_index=True).assign(layer=np.arange(12) + 1)
    assert said(mode_commitment=trend)["agrees"][item] == "cannot be told"
