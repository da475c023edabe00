"""Tables of a reading of replicas, from planted curves and Gram matrices."""

import math

import numpy as np
import pytest

from flowscope.instruments.sync.commitment.outcomes import Curve
from flowscope.instruments.sync.commitment.tables import (
    agreement_table,
    commitment_table,
    commitment_times,
    effect_table,
    gap_table,
)
from flowscope.instruments.sync.config import SyncConfig
from flowscope.instruments.sync.internal_gap.tables import energy_table, internal_gap_table
from flowscope.replica import commitment_time


def test_the_effect_of_coupling_leaves_no_coupling_out():
    """The least coupling is the least that is on; one alone has nothing to be compared with."""
    x = np.linspace(0, 6, 7)
    noise = 0.05 * np.random.default_rng(0).standard_normal((8, 7))

    def at(place):
        return commitment_time(x, 1 / (1 + np.exp(-3 * (x - place))) + noise, resamples=50)

    times = {
        (0, 0.0, False, "feature"): commitment_time(x, noise, resamples=50),
        (0, 0.2, False, "feature"): at(4.0),
        (0, 1.0, False, "feature"): at(2.0),
        (0, 0.0, True, "feature"): at(3.0),
    }
    config = SyncConfig.model_validate({"couplings": (1.0, 0.0, 0.2), "resamples": 50})
    table = effect_table(times, config, ()).set_index("kind")
    assert table.loc["least − largest coupling", "difference"] == pytest.approx(2, abs=0.2)
    assert table.loc["least coupling − control", "difference"] == pytest.approx(1, abs=0.2)
    alone = SyncConfig.model_validate({"couplings": (1.0,), "resamples": 50})
    assert list(effect_table(times, alone, ())["kind"]) == ["least coupling − control"]


def planted_curve(coarse, fine, g=0.5):
    """Eight pairs whose agreement rises at the given steps, of six."""
    steps = np.arange(7)
    noise = 0.03 * np.random.default_rng(1).standard_normal((8, 7))

    def rising(place):
        return 1 / (1 + np.exp(-3 * (steps - place))) + noise

    return Curve(
        label=1, g=g, control=False, steps=steps, images=np.zeros((7, 2, 1, 8, 8), np.float32),
        measures={"coarse": rising(coarse), "fine": rising(fine)}, distances={},
    )  # fmt: skip


def test_planted_transitions_are_found_and_ordered():
    config = SyncConfig.model_validate({"couplings": (0.2, 0.5), "resamples": 100})
    curves = [planted_curve(2.0, 4.0, 0.2), planted_curve(4.0, 2.5, 0.5)]
    times = commitment_times(curves, config)
    names = ("cat", "dog", "owl")
    gaps = gap_table(times, curves, names)
    np.testing.assert_allclose(gaps["gap"], [2.0, -1.5], atol=0.2)
    assert (gaps["low"] <= gaps["gap"]).all()
    assert set(gaps["class"]) == {"dog"}
    table = commitment_table(times, curves, names, {"feature": "no encoder"})
    found = table.set_index(["g", "measure"])
    assert found.loc[(0.2, "coarse"), "midpoint"] == pytest.approx(2.0, abs=0.2)
    assert found.loc[(0.2, "feature"), "because"] == "no encoder"
    agreement = agreement_table(curves, times, names, config)
    rows = agreement[(agreement["g"] == 0.2) & (agreement["measure"] == "fine")]
    np.testing.assert_allclose(rows["value"], np.median(curves[0].measures["fine"], 0))
    np.testing.assert_allclose(rows["fit"], rows["value"], atol=0.05)


def test_planted_modes_part_at_the_step_that_is_read():
    """Two layers, three steps: trailing modes grow threefold in layer 2 at the last step only."""
    generator = np.random.default_rng(0)
    first = generator.standard_normal((16, 40)) / np.arange(1, 41)
    noise = 0.02 * generator.standard_normal((16, 40)) / np.arange(1, 41)
    parted = (first + noise) * np.where(np.arange(40) < 2, 1.0, 3.0)

    def gram(later):
        rows = np.vstack([first, later])
        return rows @ rows.T

    still = gram(first + noise)
    grams = np.stack([[gram(first), still, still], [gram(first), still, gram(parted)]])
    sizes = np.arange(1.0, 13).reshape(2, 6)
    arrays = {
        "gram": grams, "kept": np.array([0, 2, 5]), "difference": sizes, "hidden": 2 * sizes + 1,
        "clock_gram": grams[:, 1:], "clock": np.array([2, 5]),
        "latent_gram": np.stack([still, still]),
    }  # fmt: skip
    config = SyncConfig.model_validate({"band": 2, "draws": 99, "pairs": 16, "steps": 6})
    table = internal_gap_table({0.0: arrays, 0.5: arrays}, {0.0: 5, 0.5: 2}, config)
    found = table.set_index(["g", "layer"])
    assert found.loc[(0.0, 2), "log_gap"] > 0.5
    assert found.loc[(0.0, 2), "p_all"] <= 0.05
    for place in ((0.0, 1), (0.5, 1), (0.5, 2)):
        assert abs(found.loc[place, "log_gap"]) < 0.1
        assert found.loc[place, "p_all"] > 0.05
    assert found["step"].tolist() == [5, 5, 5, 2, 2, 2]
    assert found.index.get_level_values("layer").tolist() == [0, 1, 2, 0, 1, 2]
    # The gap of the clock alone is in the published columns, not in ours.
    clock = arrays | {"clock_gram": np.stack([[still, still]] * 2)}
    ours = internal_gap_table({0.0: clock}, {0.0: 5}, config).set_index("layer").loc[2]
    assert abs(ours["log_gap"]) < 0.1
    assert ours["mixed_log_gap"] > 0.5
    assert ours["naive"] > 3
    energies = energy_table({0.0: arrays}, config).set_index(["layer", "step"])
    row = energies.loc[(2, 5)]
    assert row["trail"] / row["lead"] > 3
    assert row["difference"] == pytest.approx(12 / 25)
    np.testing.assert_allclose(energies.loc[(1, 0), ["lead", "trail"]].astype(float), 1.0)


def test_too_few_modes_abstain_layer_by_layer():
    merged = np.zeros((1, 2, 16, 16))
    merged[:, :, :8, :8] = np.eye(8)
    arrays = {"gram": merged, "kept": np.array([0, 3])}
    arrays |= {"clock_gram": merged[:, 1:], "clock": np.array([3]), "latent_gram": merged[0, 1:]}
    config = SyncConfig.model_validate({"band": 2, "pairs": 8, "steps": 6})
    _, row = internal_gap_table({0.0: arrays}, {0.0: 3}, config).to_dict("records")
    assert row["status"] == "abstained"
    assert "the replicas have merged" in row["because"]
    assert math.isnan(row["log_gap"])
    assert math.isnan(row["p_all"])


@pytest.mark.parametrize(("sign", "status"), [(1, "ok"), (-1, "no transition")])
def test_agreement_that_falls_is_no_commitment(sign, status):
    x = np.arange(8)
    noise = 0.02 * np.random.default_rng(1).standard_normal((8, 8))
    values = 1 / (1 + np.exp(-3 * sign * (x - 4.0))) + noise
    curve = Curve(
        label=0, g=0.5, control=False, steps=x, measures={"feature": values}, distances={},
        images=np.zeros((8, 2, 1, 2, 2), np.float32),
    )  # fmt: skip
    config = SyncConfig.model_validate({"resamples": 50})
    (time,) = commitment_times([curve], config).values()
    assert time.status == status
    assert math.isnan(time.midpoint) == (status != "ok")
    assert ("the agreement falls" in time.because) == (sign < 0)
    table = agreement_table([curve], {(0, 0.5, False, "feature"): time}, (), config)
    assert table["fit"].isna().all() == (sign < 0)
