"""What cannot be read gets a sentence, and the rest of the run is measured."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from tests import networks

from flowscope.errors import InvalidInputError
from flowscope.instruments.latent.clouds import Sample, entropy_refusal
from flowscope.instruments.latent.config import LatentConfig
from flowscope.instruments.latent.entropy.reading import cloud_entropies, principal_axes
from flowscope.instruments.latent.subject import prepare
from flowscope.probes import tap_pass
from flowscope.probes.layers.clouds import CloudProbe
from flowscope.probes.layers.particles import ParticleProbe
from flowscope.probes.tap_loop import PlainBatch


def _sample(prompts, each):
    groups = torch.arange(prompts).repeat_interleave(each)
    return Sample(
        name="all", places=torch.arange(len(groups)), prompt=groups, kind=torch.arange(len(groups)),
        halves=torch.zeros(0, len(groups), dtype=torch.bool),
    )  # fmt: skip


def test_few_prompts_abstain_from_entropy_and_leave_the_rest(tiny_run):
    document = tiny_run("latent").document
    because = {one["name"]: one["because"] for one in document["verdicts"]}
    assert set(because) == {"L1", "L2", "L3"}
    for name in ("L1", "L2"):
        assert "an entropy needs 20 prompts with tokens that count; found 3" in because[name]
    assert "at least 8 prompts are needed; this run has 3" in because["L3"]
    assert {"model", "verdicts", "layers", "clustering", "run"} <= set(document)
    assert document["clustering"]
    assert all(row["mean_cosine"] is not None for row in document["layers"])


def test_columns_of_the_contract_have_their_ends(tiny_run):
    row = tiny_run("latent").result.table
    for name in (
        "entropy_knn", "entropy_gaussian", "negentropy", "bias", "dimension_two_nn",
        "dimension_mle",
        "same_type_neighbours", "mean_cosine", "effective_rank",
    ):  # fmt: skip
        assert {name, f"{name}_low", f"{name}_high"} <= set(row.columns)
    assert {"layer", "sample", "rank"} <= set(row.columns)


def test_few_types_are_named_with_their_number():
    samples = {"all": _sample(30, 20), "types": _sample(30, 2)}
    said = entropy_refusal(SimpleNamespace(samples=samples, copies=0))
    assert said.startswith("an entropy needs 300 distinct tokens; found 60")


def _entropy(x, rank):
    sample = _sample(20, len(x) // 20)
    generator = torch.Generator().manual_seed(0)
    return cloud_entropies(
        principal_axes(x), sample, (rank,), k=3, surrogates=1, generator=generator
    )


@pytest.mark.parametrize(
    ("x", "rank", "words"),
    [
        (torch.ones(400, 12).double(), 8, "lie in 0 dimensions, fewer than 8"),
        (torch.eye(12).double()[torch.arange(400) % 12], 8, "Points must differ from each other"),
        (torch.randn(100, 12, generator=torch.Generator().manual_seed(0)).double(), 11,
         "10 points for each dimension"),
    ],
)  # fmt: skip
def test_constant_repeated_and_few_points_give_a_reason_and_no_number(x, rank, words):
    values, (reason,) = _entropy(x, rank)
    assert words in reason
    assert np.isnan(values).all()


@pytest.mark.parametrize("probe", [CloudProbe({0: np.arange(1, 5)}), None])
def test_states_that_are_not_finite_stop_with_a_sentence(probe):
    model, inputs = networks.gpt2()
    with torch.no_grad():
        next(iter(model.transformer.h[1].mlp.c_proj.parameters())).fill_(torch.nan)
    rows, length = inputs["input_ids"].shape
    batch = PlainBatch(
        inputs=inputs, prompts=np.arange(rows), mask=torch.ones(rows, length, dtype=torch.bool)
    )
    with pytest.raises(InvalidInputError, match="finite"):
        tap_pass(model, [batch], {"p": probe or ParticleProbe(model)})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ranks": (16, 8)}, "each larger than the one before"),
        ({"ranks": ()}, "1 to 4 whole numbers"),
        ({"refinements": (0,)}, "whole numbers from 1"),
        ({"ranks": (64,), "points": 500}, "needs 640 points"),
    ],
)
def test_settings_that_do_not_fit_get_a_sentence(changes, words):
    with pytest.raises(InvalidInputError, match=words):
        prepare(LatentConfig(**changes), {})


def test_a_setting_out_of_bounds_is_refused():
    with pytest.raises((InvalidInputError, ValidationError)):
        LatentConfig(points=3)


@pytest.mark.parametrize("make", [networks.bert, networks.vit, networks.t5, networks.dit])
def test_particles_are_summed_on_other_families(make):
    model, inputs = make()
    rows = len(next(v for v in inputs.values() if isinstance(v, torch.Tensor) and v.ndim))
    batch = PlainBatch(
        inputs=inputs, prompts=np.arange(rows), mask=torch.ones(rows, 1, dtype=torch.bool)
    )
    (piece,) = tap_pass(model, [batch], {"p": ParticleProbe(model)})["p"]
    sums = piece.arrays["sums"]
    assert sums.shape[0] == rows
    assert np.isfinite(sums[:, :, 1:4]).all()
