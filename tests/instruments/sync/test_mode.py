"""A denoiser in training mode is sampled without dropout, the same at every run."""

import pytest
import torch
from tests.models.synthetic_pipelines import dit, pooled
from torch import nn

import flowscope as fs
from flowscope.errors import ModelWarning, UnsupportedModelError

SMALL = {
    "pairs": 8, "steps": 6, "interventions": 6, "couplings": (1.0,), "resamples": 20, "draws": 39,
    "kept": 2, "propagation": False, "finals": 16, "band": 1, "only": "R1",
}  # fmt: skip


@pytest.fixture
def scheduler():
    from diffusers import DDPMScheduler

    return DDPMScheduler(num_train_timesteps=50, beta_schedule="squaredcos_cap_v2")


def _run(model, scheduler):
    return fs.sync(model, scheduler=scheduler, encoder=pooled, **SMALL).run


def test_training_mode_gives_the_numbers_of_evaluation_mode(scheduler):
    model = dit(dropout=0.3)
    quiet = _run(model, scheduler).read_table("agreement")
    model.train()
    model.transformer_blocks[0].eval()
    before = [module.training for module in model.modules()]
    with pytest.warns(ModelWarning, match="DiTTransformer2DModel"):
        run = _run(nn.DataParallel(model), scheduler)
    assert run.read_table("agreement").equals(quiet)
    assert [module.training for module in model.modules()] == before
    assert "evaluation mode" in run.read_manifest().config_resolved["measured"]["mode"]


class _Noise(nn.Module):
    def forward(self, x, *rest, **more):
        return x + torch.randn_like(x)


def test_a_noisy_denoiser_is_refused_by_both_instruments(scheduler):
    model = dit()
    model.proj_out_2 = nn.Sequential(model.proj_out_2, _Noise()).eval()
    for instrument in (fs.sync, fs.image):
        with pytest.raises(UnsupportedModelError, match="two passes on one input differ"):
            instrument(model, scheduler=scheduler)
