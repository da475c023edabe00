"""`flowscope.sync` as a user calls it: tables, JSON, resuming, and a sentence for bad input."""

import json
import math

import diffusers
import numpy as np
import pytest
import torch
from tests.instruments.tiny import shown
from tests.models.synthetic_pipelines import dit, pixel_folder, pooled, saved, unet, vae

import flowscope as fs
from flowscope.errors import InvalidInputError, UnsupportedModelError
from flowscope.instruments.sync.config import SyncConfig
from flowscope.lab import engine, registry
from flowscope.lab.study import reproduce
from flowscope.records import Unavailable

SMALL = {
    "pairs": 8, "steps": 6, "interventions": 6, "couplings": (0.2, 1.0), "resamples": 20,
    "draws": 39, "kept": 3, "propagation": False, "finals": 16, "twins": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return pixel_folder(tmp_path_factory.mktemp("pipeline"), names=["cat", "dog", "owl"])


@pytest.fixture(scope="module")
def found(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("sync") / "run"
    return fs.sync(folder, encoder=pooled, out=out, labels=(0, 2), **SMALL)


def test_the_strip_shows_the_first_pair_under_every_coupling(found):
    strip = found.run.read_arrays("strip")
    assert strip["images"].shape == (3, 6, 2, 1, 8, 8)
    assert strip["control"].tolist() == [False, False, True]


def test_every_class_coupling_and_measure_has_its_rows(found):
    keys = ["label", "class", "g", "control", "measure"]
    expected = {
        (label, name, g, control, measure)
        for label, name in ((0, "cat"), (2, "owl"))
        for g, control in ((0.2, False), (1.0, False), (0.0, True))
        for measure in ("feature", "coarse", "fine")
    }
    assert set(found.commitment[keys].itertuples(index=False, name=None)) == expected
    agreement = found.run.read_table("agreement")
    assert set(agreement[keys].itertuples(index=False, name=None)) == expected
    assert len(agreement) == len(expected) * 6
    assert (agreement["low"] <= agreement["value"]).all()
    assert (agreement["value"] <= agreement["high"]).all()
    internal = found.internal_gap
    assert set(internal[["g", "layer"]].itertuples(index=False, name=None)) == {
        (g, layer) for g in (0.0, 0.2, 1.0) for layer in (0, 1, 2)
    }
    assert internal["p_all"].ge(internal["p"].min() / 2).all()


def test_energies_are_one_at_the_start(found):
    """Modes of the first differences have the energy 1 there, whatever the band."""
    energies = found.run.read_table("energies")
    first = energies[energies["step"] == 0]
    np.testing.assert_allclose(first[["lead", "trail"]], 1.0, rtol=1e-6)
    assert (energies["difference"] > 0).all()


def test_the_manifest_says_what_was_read(found):
    resolved = found.run.read_manifest().config_resolved
    assert resolved["command"] == "sync"
    assert (resolved["pairs"], resolved["steps"]) == (8, 6)
    measured = dict(resolved["measured"])
    assert (measured["pairs"], measured["steps"], measured["encoder"]) == (8, 6, "pooled")
    assert list(measured["classes"]) == ["cat", "owl"]


def test_json_keeps_its_contract(found):
    document = json.loads(json.dumps(found.to_json(), allow_nan=False))
    expected = [
        (label, g, control)
        for label in (0, 2)
        for g, control in ((0.2, False), (1.0, False), (0.0, True))
    ]
    for name in ("tau_spec", "tau_coarse", "tau_fine"):
        assert [(row["label"], row["g"], row["control"]) for row in document[name]] == expected
        for row in document[name]:
            assert row["midpoint"] == "no transition" or isinstance(row["midpoint"], float)
            assert (row["interval"] is None) == (row["midpoint"] == "no transition")
            assert bool(row["because"]) == (row["midpoint"] == "no transition")
    assert {(row["g"], row["layer"]) for row in document["gap"]} == {
        (g, layer) for g in (0.0, 0.2, 1.0) for layer in (0, 1, 2)
    }
    for row in document["gap"]:
        assert row["null_low"] <= row["null_high"]
    assert {v["name"] for v in document["verdicts"]} == {"R1", "R2"}


def test_a_reading_says_itself_in_words(found):
    told = str(found)
    assert "R1" in told
    assert "R2" in told
    assert "cat, g = 0.2: tau_spec" in told
    assert "owl, shared noise: tau_spec" in told
    assert "<table" in found._repr_html_()


def test_a_finer_sweep_reuses_shards_and_other_settings_do_not(folder, tmp_path):
    def steps_of(**changed):
        calls = []

        def progress(stage, done, total):
            assert 0 <= done <= total
            calls.append(stage)

        config = SyncConfig.resolved({"out": str(tmp_path), **SMALL, **changed})
        given = {"source": folder, "encoder": pooled}
        engine.run(registry.instrument("sync"), config, given=given, progress=progress)
        return calls.count("images")

    whole = steps_of()
    finer = steps_of(couplings=(0.2, 0.6, 1.0))
    assert finer < whole
    assert steps_of(resamples=30) <= 2
    assert steps_of(seed=1) == whole
    assert steps_of(sigma=0.5) == whole


def test_the_model_in_memory_is_left_as_it_was(tmp_path):
    model = dit()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    given = {"scheduler": diffusers.DDPMScheduler(), "encoder": pooled, "classes": ("a", "b", "c")}
    found = fs.sync(model, out=tmp_path / "run", **given, **SMALL)
    assert set(found.commitment["class"]) == {"a"}
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_a_latent_pipeline_is_compared_in_its_images(tmp_path):
    model = dit(4, 8)
    folder = saved(
        tmp_path / "pipe", model=model, scheduler=diffusers.DDIMScheduler(), decoder=vae()
    )  # fmt: skip
    seen = []

    def encoder(images):
        seen.append(images)
        return pooled(images)

    found = fs.sync(folder, encoder=encoder, out=tmp_path / "run", **SMALL)
    assert all(images.shape in ((3, 3, 16, 16), (8, 3, 16, 16)) for images in seen)
    assert max(float(images.abs().max()) for images in seen) <= 1
    assert found.run.read_arrays("strip")["images"].shape[-3:] == (3, 16, 16)
    assert set(found.internal_gap["layer"]) == {0, 1, 2}


def test_a_unet_has_outcomes_and_no_depth(tmp_path):
    given = {"scheduler": diffusers.DDPMScheduler(), "encoder": pooled, **SMALL}
    found = fs.sync(unet(), out=tmp_path / "run", **given)
    assert set(found.commitment["class"]) == {"all"}
    gap = found.internal_gap
    assert isinstance(gap, Unavailable)
    assert "block" in gap.reason
    assert found.to_json()["gap"] == {"abstained": gap.reason}
    assert {v.name: v.decision for v in found.verdicts}["R2"] == "abstains"
    with pytest.raises(InvalidInputError, match="takes no class labels; leave labels out"):
        fs.sync(unet(), labels=(1,), **given)


def test_replicas_that_never_part_decide_nothing(tmp_path):
    """They start at one point and meet no noise: nothing can be measured."""
    given = {"scheduler": diffusers.DDPMScheduler(), "encoder": pooled, **SMALL}
    found = fs.sync(unet(), out=tmp_path / "run", sigma=0.0, eta=0.0, **given)
    assert found.abstained
    assert {v.decision for v in found.verdicts} == {"abstains"}


def test_the_terminal_shows_every_class_and_the_control(tiny_run):
    words = " ".join(shown("sync", tiny_run("sync").document).split())
    for part in ("owl", "shared noise", "95 % intervals over pairs"):
        assert part in words


def test_without_an_encoder_features_abstain(folder, tmp_path):
    found = fs.sync(folder, out=tmp_path / "run", **SMALL)
    rows = found.commitment[found.commitment["measure"] == "feature"]
    assert set(rows["status"]) == {"abstained"}
    assert rows["because"].str.contains("28 × 28, not 1 × 8 × 8").all()
    assert {row["midpoint"] for row in found.to_json()["tau_spec"]} == {"abstained"}
    noted = {m.name: m.because for m in found.run.read_measurements()}
    assert "bundled encoder" in noted["tau_spec"]
    assert found.run.read_table("coupling_effect").empty


def test_guidance_runs_through_both_protocols(folder, tmp_path):
    plain, guided = (
        fs.sync(folder, encoder=pooled, out=tmp_path / str(w), guidance=w, **SMALL)
        for w in (1.0, 3.0)
    )
    first, second = (s.run.read_table("energies")["difference"] for s in (plain, guided))
    assert np.isfinite(second).all()
    assert not np.allclose(first, second)


def test_an_odd_number_of_pairs_is_fine(folder, tmp_path):
    found = fs.sync(folder, encoder=pooled, out=tmp_path / "run", **{**SMALL, "pairs": 9})
    assert set(found.internal_gap["n"]) == {9}
    assert set(found.internal_gap["status"]) == {"ok"}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"couplings": (0.5, 1.5)}, r"couplings must lie in \[0, 1\]; got 1.5"),
        ({"couplings": (-0.1,)}, r"couplings must lie in \[0, 1\]; got -0.1"),
        ({"couplings": (math.nan,)}, "must be a finite number; got nan"),
        ({"couplings": (0.5, 0.5)}, "couplings must differ"),
        ({"couplings": ()}, "couplings"),
        ({"labels": (3,)}, r"labels must lie between 0 and 2 \(cat … owl\); got 3"),
        ({"labels": (0, 0)}, "labels must differ"),
        ({"pairs": 7, "band": 2}, "need 8 pairs, because half of them make the modes; got 7"),
        ({"band": 3}, "need 12 pairs.*got 8"),
        ({"interventions": 8}, "8 interventions do not fit into 6 steps; there are 7 places"),
        ({"steps": 2000}, "steps must lie between 1 and 1000; got 2000"),
        ({"eta": 1.5}, "eta"),
        ({"sigma": -1.0}, "sigma"),
        ({"pair": 8}, "Did you mean 'pairs'"),
        ({"classes": ("a",)}, "takes 3 class labels; got the names of 1"),
    ],
)
def test_bad_input_is_a_sentence(folder, tmp_path, changed, words):
    with pytest.raises(InvalidInputError, match=words):
        fs.sync(folder, encoder=pooled, out=tmp_path / "run", **{**SMALL, **changed})


def test_damaged_weights_are_refused(tmp_path):
    model = dit()
    with torch.no_grad():
        model.transformer_blocks[1].ff.net[0].proj.weight[3, 5] = math.nan
    with pytest.raises(InvalidInputError, match=r"ff\.net\.0\.proj\.weight holds 1 values"):
        fs.sync(model, scheduler=diffusers.DDPMScheduler(), out=tmp_path / "run", **SMALL)


def test_a_model_of_text_is_no_denoiser():
    with pytest.raises(UnsupportedModelError, match="not a denoiser of images"):
        fs.sync(fs.load(torch.nn.Linear(2, 2)), scheduler=diffusers.DDPMScheduler())


def test_the_study_adds_a_table_of_claims(folder, tmp_path):
    small = [f"sync.{name}={list(v) if isinstance(v, tuple) else v}" for name, v in SMALL.items()]
    study = reproduce(
        "synchronization_gap", str(folder), overrides=[*small, "sync.labels=[0]"],
        out=str(tmp_path),
    )  # fmt: skip
    assert list(study.claims.columns) == [
        "item",
        "where",
        "says",
        "measured",
        "agrees",
        "rule",
        "by_chance",
    ]
    assert (study.source, study.to_json()["measured"]["pairs"]) == ("004", 8)
    assert {"yes", "no", "cannot be told", "not measured"} >= set(study.claims["agrees"])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The bundled model with its own encoder: six steps, four pairs."""
    out = tmp_path_factory.mktemp("trained")
    few = {"pairs": 4, "band": 1, "couplings": (1.0,), "out": str(out), "resamples": 200}
    settings = {**SMALL, **few}
    return engine.run(registry.instrument("sync"), SyncConfig.model_validate(settings))


def test_coupling_a_trained_model_makes_its_images_agree(trained):
    """Replicas tied to the end agree more than those let go at once, in every measure."""
    rows = trained.run.read_table("agreement")
    tied = rows[rows["g"] == 1.0].set_index(["measure", "step"])["value"]
    for measure, least in (("feature", 0.005), ("coarse", 0.2), ("fine", 0.2)):
        assert tied[measure, 6] - tied[measure, 0] > least
    assert len(set(trained.internal_gap["layer"])) >= 16
    assert "the bundled encoder" in trained.to_json()["measured"]["encoder"]


def test_couplings_that_shards_cannot_tell_apart_are_refused(tmp_path):
    given = {**SMALL, "couplings": (0.3, 0.3000001)}
    with pytest.raises(InvalidInputError, match="within six digits"):
        fs.sync(dit(), scheduler=diffusers.DDIMScheduler(), out=tmp_path / "run", **given)
