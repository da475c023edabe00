"""What the field says of input that it cannot measure, and what it measures all the same."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from tests import networks
from tests.instruments.field.conftest import SETTINGS, reading
from torch import nn

import flowscope as fs
from flowscope.errors import FlowscopeError, InvalidInputError
from flowscope.instruments.field.findings import _large_changes
from flowscope.instruments.field.forecast import RANK_ONLY
from flowscope.instruments.field.jacobians import measure
from flowscope.pde import jacobian_bounds
from flowscope.probes.block_visit import block_visits
from flowscope.probes.field.changes import Quantise


def read(model, batch, out, **settings):
    """A run on ready-made inputs."""
    rows = [{name: x[k : k + 2] for name, x in batch.items()} for k in range(0, 4, 2)]
    more = {**SETTINGS, "products": 3, "draws": 4, **settings}
    return fs.field(model, inputs=rows, out=str(out), **more)


def doubled(batch):
    """Four rows of a batch of two."""
    return {name: torch.cat([x, x.flip(0)]) for name, x in batch.items()}


def because(result):
    return {verdict.name: verdict.because for verdict in result.verdicts}


def test_one_token_says_that_nothing_can_be_compared(tmp_path):
    model, _ = networks.llama()
    batch = {"input_ids": torch.tensor([[3], [4], [5], [6]])}
    result = read(model, batch, tmp_path)
    said = because(result)
    assert all(verdict.outcome != "holds" for verdict in result.verdicts)
    assert "no prompt has enough tokens" in said["F2"]
    assert "Give longer prompts" in said["F1"]
    assert result.table["mean_cosine"].isna().all()


def test_equal_tokens_have_no_spread_to_judge(tmp_path):
    """Else F1 would judge how rounding spreads them: it held on 16 such prompts."""
    model, _ = networks.llama()
    batch = {"input_ids": torch.arange(4)[:, None].expand(4, 12).contiguous()}
    result = read(model, batch, tmp_path)
    assert "equal but for rounding" in because(result)["F1"]
    assert result.table["spread_attention"].isna().all()
    assert (result.table["effective_rank"] < 1.01).all()


def test_changes_that_cost_nothing_give_no_finding(tmp_path):
    model, batch = networks.llama(layers=2)
    with torch.no_grad():
        for block in model.model.layers:
            block.self_attn.o_proj.weight.zero_()
            block.mlp.down_proj.weight.zero_()
    result = read(model, doubled(batch), tmp_path)
    assert (result.forecast["measured"] == 0).all()
    assert not any("costs most" in finding.text for finding in result.findings)


def test_a_kind_that_measures_nothing_is_named_without_a_logarithm():
    kinds = {"kind": ["skip", "scale"], "ratio": [0.0, 3.0], "ratio_total": [0.0, 3.0],
             "trust": [RANK_ONLY] * 2}  # fmt: skip
    records = SimpleNamespace(table=lambda name, *columns: pd.DataFrame(kinds))
    assert "all blocks together cost 0 times" in _large_changes(records).text


def test_one_block_is_measured_and_not_ranked(tmp_path):
    model, batch = networks.llama(layers=1)
    result = read(model, doubled(batch), tmp_path)
    said = because(result)
    assert "at least 3 blocks" in said["F2"]
    assert "too few to rank" in said["F3"]
    assert result.table["angular_attention"].notna().all()
    assert result.table["sigma_max"].notna().all()


def test_post_norm_has_no_budget_and_the_rest(tmp_path):
    model, batch = networks.bert()
    result = read(model, doubled(batch), tmp_path)
    assert "post-norm" in because(result)["F1"]
    assert result.table["energy_attention"].isna().all()
    for name in ("mean_cosine", "high_frequency_stream", "sigma_max"):
        assert result.table[name].notna().all(), name
    assert (result.forecast["predicted"] > 0).all()
    changes = result.interventions.set_index(["subject", "change"])
    assert changes.loc[("model", "attention × 0"), "kl"] > 0
    assert changes["cosine_last"].notna().all()
    page = result.report().read_text(encoding="utf-8")
    assert "post-norm" in page


def test_half_precision_has_no_jacobians(tmp_path):
    model, batch = networks.llama()
    result = read(model.to(torch.bfloat16), doubled(batch), tmp_path)
    reason = result.table_or_reason("jacobians").reason
    assert "bfloat16" in reason
    assert "model.float()" in reason
    assert result.table["angular_attention"].notna().all()


def test_an_overflow_names_the_block_and_keeps_those_before_it(tmp_path):
    model, batch = networks.llama(layers=4)
    with torch.no_grad():
        model.model.layers[2].mlp.down_proj.weight.fill_(3e38)
    result = read(model, doubled(batch), tmp_path)
    table = result.table.set_index("layer")
    assert table.loc[[1, 2], "angular_attention"].notna().all()
    assert table.loc[[3, 4], "angular_attention"].isna().all()
    (finding,) = [f for f in result.findings if "not finite" in f.text]
    assert "block 3" in finding.text
    assert table.loc[[1, 2], "sigma_max"].notna().all()
    assert table.loc[[3, 4], "sigma_max"].isna().all()


def test_an_intervention_that_overflows_names_the_block(small):
    table = small.result.interventions
    removed = table[(table["subject"] == "model") & (table["change"] == "norms removed")].iloc[0]
    assert removed["overflow"] == 0  # a small network bears it
    frozen = table[table["change"] == "norms frozen"]
    assert set(frozen["subject"]) == {"model", "twin"}


def test_weights_that_are_no_numbers_are_refused(tmp_path, small):
    model, _ = networks.llama()
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[0, 0] = float("nan")
    with pytest.raises(InvalidInputError, match="finite"):
        reading(model, small.tokenizer, tmp_path)


@pytest.mark.parametrize("bits", [1, 0, 2.5])
def test_too_few_bits_are_refused(bits, tmp_path, small):
    with pytest.raises(FlowscopeError, match="bits"):
        reading(small.model, small.tokenizer, tmp_path, bits=bits)
    with pytest.raises(InvalidInputError, match="bits"):
        Quantise(bits=bits)
    assert not any(tmp_path.iterdir())


def test_soft_capped_attention_has_derivatives(tmp_path):
    model, batch = networks.gemma2()
    result = read(model, doubled(batch), tmp_path, interventions=False, draws=0)
    assert result.table["sigma_max"].notna().all()


class Fused(torch.autograd.Function):
    """A kernel with a backward and without a forward derivative."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


class FusedPart(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return Fused.apply(self.inner(x))


def test_a_kernel_without_forward_derivative_is_named_and_the_other_blocks_stay(tmp_path):
    model, batch = networks.llama()
    block = model.model.layers[1]
    block.mlp.down_proj = FusedPart(block.mlp.down_proj)
    visit = block_visits(model, {**batch, "use_cache": False})[1]
    with pytest.raises(InvalidInputError, match="no forward derivative"):
        jacobian_bounds(visit.write, visit.H0, products=1)
    result = read(model, doubled(batch), tmp_path, interventions=False, draws=0, controls=False)
    gains = result.table["sigma_max"].to_numpy()
    assert np.isfinite(gains[[0, 2]]).all()
    assert np.isnan(gains[1])
    said = [m.because for m in result.run.read_measurements() if m.name.startswith("jacobians, ")]
    assert "1 blocks (2)" in said[0]
    assert "forward derivative" in said[0]


def test_a_killed_run_resumes_its_jacobians(tmp_path, small, monkeypatch):
    calls = []

    def bounds(*args, **kwargs):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return jacobian_bounds(*args, **kwargs)

    monkeypatch.setattr(measure, "jacobian_bounds", bounds)
    settings = {"interventions": False, "draws": 0, "controls": False, "products": 3}
    with pytest.raises(KeyboardInterrupt):
        reading(small.model, small.tokenizer, tmp_path, **settings)
    result = reading(small.model, small.tokenizer, tmp_path, **settings)
    assert len(calls) == 4 + 3  # three blocks were finished before the interruption
    assert result.table["sigma_max"].notna().all()
