"""003's diffusion falls with the steps that replace a block, on the bundled model."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tests import networks

from flowscope.instruments.latent.rate.refinement import refinement_table, squared_steps
from flowscope.models.prompts import Batch


def _bench(make, refinements=(1, 2, 4), prompts=4):
    model, inputs = make()
    rows = len(next(iter(inputs.values())))
    batch = Batch(
        inputs=inputs, prompts=np.arange(rows), mask=torch.ones(rows, 1, dtype=torch.bool)
    )
    config = SimpleNamespace(control_prompts=prompts, refinements=refinements, resamples=20, seed=0)
    material = SimpleNamespace(batches=lambda most: iter([batch]), size=rows)
    return SimpleNamespace(
        config=config,
        subject=SimpleNamespace(material=material, loaded=SimpleNamespace(model=model)),
        counter=lambda name, total: SimpleNamespace(advance=lambda count: None),
        shard=lambda name, make: make(),
        spread=lambda makers: None,
    )


@pytest.mark.parametrize("make", [networks.llama, networks.gpt2])
def test_diffusion_of_shorter_steps_falls_as_one_over_their_number(make):
    bench = _bench(make, refinements=(1, 4, 8, 16))
    table = refinement_table(bench.config, *squared_steps(bench)).set_index("steps")
    assert table.loc[1, "diffusivity"] == table.loc[1, "smooth"]
    slope = np.log(table.loc[8, "diffusivity"] / table.loc[16, "diffusivity"]) / np.log(2)
    assert slope == pytest.approx(1.0, abs=0.15)
