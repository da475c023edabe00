"""A finished run of the field: its columns, stages, calls, page and sentences, against oracles."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from tests.instruments.field.conftest import SETTINGS, texts

from flowscope.errors import InvalidInputError
from flowscope.instruments.field.findings import findings
from flowscope.instruments.field.jacobians.stiff import STIFF
from flowscope.lab.view import Records
from flowscope.levers import intervene
from flowscope.probes.block_visit import block_visits
from flowscope.probes.field.changes import Quantise, Scale, Skip
from flowscope.records import Unavailable

CONTRACT = (
    "energy_attention", "energy_feed_forward", "radial_attention", "radial_feed_forward",
    "angular_attention", "angular_feed_forward", "part_self", "part_others", "part_sink",
    "spread_attention", "spread_feed_forward", "mean_cosine", "effective_rank",
    "high_frequency_stream", "high_frequency_attention", "high_frequency_feed_forward",
    "sigma_max", "log_norm", "mean_gain", "massive_tokens",
)  # fmt: skip


@pytest.mark.parametrize("name", CONTRACT)
def test_every_column_of_the_contract_has_a_number_between_its_ends(small, name):
    table = small.result.table
    assert table["layer"].tolist() == [1, 2, 3, 4, 5, 6]
    value, low, high = (table[f"{name}{end}"] for end in ("", "_low", "_high"))
    assert value.notna().all()
    assert (low <= value + 1e-9).all()
    assert (value <= high + 1e-9).all()


def test_document_has_the_keys_of_the_contract(small):
    document = small.result.to_json()
    json.dumps(document)
    assert {"model", "verdicts", "blocks", "forecast", "interventions", "run"} <= set(document)
    assert [verdict["name"] for verdict in document["verdicts"]] == ["F1", "F2", "F3"]
    row = document["forecast"][0]
    assert {"kind", "layer", "bits", "predicted", "low", "high", "measured"} <= set(row)


def test_gains_are_those_of_the_dense_jacobian(small):
    inputs = {"input_ids": small.ids[:1, :5], "use_cache": False}
    visit = block_visits(small.model.double(), inputs)[3]
    J = torch.autograd.functional.jacobian(visit.write, visit.H0)[0, :, :, 0]
    small.model.float()
    lengths = visit.H0[0].norm(dim=-1)
    J = J * lengths[:, None] / lengths[:, None, None, None]  # each token by its own length
    J = J.reshape(5 * 32, 5 * 32).float()
    row = small.result.table.iloc[3]
    assert row["sigma_max"] == pytest.approx(float(torch.linalg.matrix_norm(J, 2)), rel=1e-3)
    rate = float(torch.linalg.eigvalsh((J + J.T) / 2)[-1])
    assert row["log_norm"] == pytest.approx(rate, rel=1e-3)
    gain = float(J.norm()) / (5 * 32) ** 0.5
    assert row["mean_gain_low"] - 0.1 * gain < gain < row["mean_gain_high"] + 0.1 * gain


def test_jacobians_stand_beside_those_of_random_weights(small):
    table = small.result.tables.jacobians
    assert (table["sigma_max_twin"] > 0).all()
    assert not np.allclose(table["sigma_max"], table["sigma_max_twin"])
    assert (table["least"] < table["log_norm"]).all()


def test_interventions_cost_what_a_second_pass_says(small):
    table = small.result.interventions.set_index(["subject", "change"])
    assert table.loc[("model", "none"), ["added", "kl"]].tolist() == [0.0, 0.0]

    def loss():
        logits = small.model(small.ids[:2]).logits[:, :-1].log_softmax(-1)
        return -logits.gather(-1, small.ids[:2, 1:, None]).mean().item()

    with torch.no_grad():
        plain = loss()
        with intervene(small.model, attention=0.5, feed_forward=0.5):
            halved = loss()
    row = table.loc[("model", "writes × 0.5")]
    assert row["loss"] == pytest.approx(halved, rel=1e-4)
    assert row["added"] == pytest.approx(halved - plain, abs=1e-4)
    assert table.loc[("twin", "none"), "loss"] != table.loc[("model", "none"), "loss"]


def test_a_call_repeats_the_forecast_of_the_table(small):
    rows = small.result.forecast(
        [(3, Skip()), (3, Scale(amount=1.0)), (5, Quantise(bits=3)), (1, Quantise(bits=2, group=8)),
         (2, Scale(amount=0.5)), (6, Scale(amount=1.1))],
        small.model, texts=texts(), tokenizer=small.tokenizer,
    )  # fmt: skip
    table = small.result.forecast.set_index(["kind", "layer"])
    assert list(rows["layer"]) == [3, 3, 5, 1, 2, 6]
    assert rows.loc[0, "predicted"] == pytest.approx(table.loc[("skip", 3), "predicted"], rel=1e-5)
    rounding = table.loc[("quantise", 5), "predicted"]
    assert rows.loc[2, "predicted"] == pytest.approx(rounding, rel=1e-5)
    assert rows.loc[1, "predicted"] < 1e-12  # rounding of the state alone
    assert rows["measured"].notna().sum() == 4
    assert rows["measured"].notna()[rows["predicted"].idxmax()]
    assert (rows["low"] <= rows["predicted"]).all()
    assert list(rows["bits"].dropna()) == [3, 2]


@pytest.mark.parametrize(
    ("changes", "more", "words"),
    [
        ([], {}, "at least one change"),
        ([Skip()], {}, "pairs"),
        ([(0, Skip())], {}, "from 1"),
        ([(9, Skip())], {}, "0 to 5"),
    ],
)
def test_bad_changes_get_a_sentence(small, changes, more, words):
    with pytest.raises(InvalidInputError, match=words):
        small.result.forecast(
            changes, small.model, texts=texts(), tokenizer=small.tokenizer, **more
        )


def test_a_call_refuses_another_model_other_texts_and_no_model(small):
    import copy

    changes = [(1, Skip())]
    other = copy.deepcopy(small.model)
    with torch.no_grad():
        other.lm_head.weight.mul_(2)
    given = {"texts": texts(), "tokenizer": small.tokenizer}
    with pytest.raises(InvalidInputError, match="weights of this model"):
        small.result.forecast(changes, other, **given)
    with pytest.raises(InvalidInputError, match="given in Python"):
        small.result.forecast(changes, small.model, tokenizer=small.tokenizer)
    with pytest.raises(InvalidInputError, match="pass the model"):
        small.result.forecast(changes)


def test_table_of_forecasts_is_a_plain_table_after_any_step(small):
    table = small.result.forecast
    assert type(table[table["kind"] == "skip"]) is pd.DataFrame
    assert not isinstance(table, Unavailable)


def test_token_steps_cover_the_first_prompt(small):
    steps = small.result.tables.token_steps
    assert sorted(set(steps["layer"])) == [1, 2, 3, 4, 5, 6]
    first = steps[steps["layer"] == 1]
    assert list(first["token"]) == texts()[0].split()
    assert (steps["attention"] > 0).all()


def test_page_draws_every_figure(small):
    result = small.result
    page = result.report().read_text(encoding="utf-8")
    names = {
        "budget", "parts", "token_map", "collapse", "spectra", "jacobians", "rounding", "agreement",
        "intervention_costs", "intervention_depth",
    }  # fmt: skip
    for name in names:
        assert f'id="plot-{name}"' in page, name
        assert result.plot(name, "matplotlib") is not None
    assert 'class="missing"' not in page


def test_stiff_blocks_are_named(small, monkeypatch):
    said = [finding.text for finding in findings(Records(run=small.result.run))]
    assert not any("stiff" in text for text in said)
    least = float(small.result.table["sigma_max"].min())
    assert least < STIFF
    monkeypatch.setattr("flowscope.instruments.field.findings.STIFF", least)
    (text,) = [
        finding.text
        for finding in findings(Records(run=small.result.run))
        if "stiff" in finding.text
    ]
    largest = int(small.result.table.set_index("layer")["sigma_max"].idxmax())
    assert text.startswith("6 of 6 blocks are stiff")
    assert f"block {largest} (" in text


def test_settings_leave_parts_out_and_say_so(small, tmp_path):
    from tests.instruments.field.conftest import reading

    result = reading(
        small.model, small.tokenizer, tmp_path, jacobians=False, interventions=False, draws=0
    )
    assert isinstance(result.interventions, Unavailable)
    assert "switched off" in result.interventions.reason
    assert "switched off" in result.forecast.reason
    assert result.table["sigma_max"].isna().all()
    page = result.report().read_text(encoding="utf-8")
    assert "Jacobians are switched off" in page
    rows = result.forecast(
        [(1, Skip())], small.model, texts=texts(), tokenizer=small.tokenizer, draws=4
    )
    assert rows.loc[0, "predicted"] > 0
    assert SETTINGS["draws"] > 0
