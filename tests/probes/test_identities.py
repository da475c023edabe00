"""Identities of source 002 on live models, each seen to break; statistics against closed forms."""

import numpy as np
import pytest
import torch
from tests import networks as models

from flowscope.probes.heads import identities
from flowscope.probes.heads.identities import IDENTITIES, HeadScores, identity_errors
from flowscope.probes.heads.regime_probe import STATISTICS, RegimeProbe, regime_statistics
from flowscope.tap import AttentionCall, Tap

NAMES = [one.name for one in IDENTITIES]


def head(n=9, d=4, size=1.0, seed=0, q=None, k=None):
    draw = torch.Generator().manual_seed(seed)
    q = size * torch.randn(2, n, d, generator=draw, dtype=torch.float64) if q is None else q
    k = size * torch.randn(2, n, d, generator=draw, dtype=torch.float64) if k is None else k
    return HeadScores(
        scores=q @ k.mT, beta=0.5, q=q, k=k, charge=0.05, sweeps=30, rounding=2.0**-52
    )


def read(model, batch, mask=None, tokens=16):
    probe = RegimeProbe(tokens=tokens, sweeps=20, charge=0.05)
    rows = next(iter(batch.values())).shape[0]
    with torch.no_grad(), Tap(model) as tap:

        def listen(call):
            if call.site.chain == tap.anatomy.depth.name:
                probe.update(call)

        tap.on_attention(listen)
        probe.begin(torch.ones(rows, 1) if mask is None else mask)
        model(**batch)
    return probe


def by_name(probe):
    return {row.identity: row for row in probe.rows()}


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma2", "bert", "dit"])
def test_every_identity_holds_on_every_head(family):
    probe = read(*getattr(models, family)())
    rows = by_name(probe)
    assert len(rows) == len(IDENTITIES) + 2
    heads = {row.heads for row in rows.values()}
    assert len(heads) == 1
    assert heads.pop() > 0
    assert {name for name, row in rows.items() if not row.holds} == set()
    assert all(row.refused == 0 for row in rows.values())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_precision_of_the_model_decides_what_its_own_attention_may_differ_by(dtype):
    model, batch = models.llama()
    rows = by_name(read(model.to(dtype), batch))
    assert all(row.holds for row in rows.values())
    wide = torch.promote_types(dtype, torch.float32)
    assert rows["the model's attention"].bound == 2 * torch.finfo(wide).eps
    assert rows["the model's output"].bound == 2 * torch.finfo(dtype).eps
    assert rows["the model's output"].error > 0


@pytest.mark.parametrize("size", [0.1, 1.0, 4.0])
def test_every_identity_holds_for_small_and_large_scores(size):
    for one in IDENTITIES:
        assert float(identity_errors(one, head(size=size)).max()) <= one.bound, one.name


def turned(name, change):
    """A function of the module with its result, or its arguments, made wrong."""
    right = getattr(identities, name)
    return lambda *given, **named: change(right, *given, **named)


def even(kernel):
    return torch.full_like(kernel[..., 0], 1 / kernel.shape[-1])


BROKEN = {
    "attention": ("attention_kernel", lambda f, W, b, **o: f(-W, b, **o)),
    "product of experts": ("product_of_experts", lambda f, P, Q: (P + Q) / 2),
    "α = ½": ("diffusion_kernel", lambda f, W, b, a=0.0: f(W, b, 1 - a)),
    "α = 1": ("diffusion_kernel", lambda f, W, b, a=0.0: f(W, b, 0.0)),
    "cycle affinity": ("cycle_affinities", lambda f, P, c: -f(P, c)),
    "flux from affinities": ("attention_kernel", lambda f, W, b, **o: f(W.mT, b, **o)),
    "reversible when exact": ("stationary_distribution", lambda f, P: even(P)),
    "entropy production": ("flux_production", lambda f, W, b, law: f(W.mT, b, law)),
    "no net flow at π": ("stationary_distribution", lambda f, P: even(P)),
    "time reversal": ("time_reversal", lambda f, P, law: P),
    "magnetic at charge 0": ("magnetic_laplacian", lambda f, W, b, q: f(-W, b, q)),
    "magnetic L ⪰ 0": ("magnetic_laplacian", lambda f, W, b, q: -f(W, b, q)),
    "magnetic gauge": ("magnetic_laplacian", lambda f, W, b, q: f(W.tril() + W.tril().mT, b, q)),
    "Sinkhorn, forward": ("sinkhorn_kernel", lambda f, W, b, **k: f(W.exp(), b, **k)),
    "Sinkhorn, backward": ("sinkhorn_kernel", lambda f, W, b, iterations: f(W, b, iterations=0)),
    "bridge, marginals": ("kernel_bridge", lambda f, P, start, end, **o: f(P, start, None, **o)),
    "bridge, Doob": ("tilted", lambda f, P, log_h: f(P, -log_h)),
    "square (1, 1)": ("operator_square", lambda f, q, k, beta, a, b: f(k, q, beta, a=a, b=b)),
    "square (0, 1)": ("operator_square", lambda f, q, k, beta, a, b: f(q, k, beta, a=1, b=b)),
    "square (0, 0)": ("operator_square", lambda f, q, k, beta, a, b: f(q, -k, beta, a=a, b=b)),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_wrong_kernel_is_seen(name, monkeypatch):
    one = next(one for one in IDENTITIES if one.name == name)
    function, change = BROKEN[name]
    monkeypatch.setattr(identities, function, turned(function, change))
    errors = identity_errors(one, head())
    assert bool((errors > 1e3 * one.bound).all()), errors


def test_wrong_sectors_are_seen(monkeypatch):
    one = next(one for one in IDENTITIES if one.name == "sectors")
    wrong = property(lambda self: self.scores - self.scores.mT)
    monkeypatch.setattr(identities.Bidivergence, "flux", wrong)
    assert float(identity_errors(one, head()).min()) > 1e-3


def test_a_kernel_that_is_not_bistochastic_is_seen(monkeypatch):
    one = next(one for one in IDENTITIES if one.name == "closure")
    columns = lambda f, W, b, iterations: f(W.mT, b, iterations=iterations).mT * 1.01  # noqa: E731
    monkeypatch.setattr(identities, "sinkhorn_kernel", turned("sinkhorn_kernel", columns))
    assert float(identity_errors(one, head()).min()) > 1e-3


def test_every_identity_is_broken_once():
    assert {*BROKEN, "sectors", "closure"} == set(NAMES)


def test_the_models_own_attention_is_the_masked_one(monkeypatch):
    plain = lambda call, rows: torch.softmax(call.scores(rows) * call.scale, -1)  # noqa: E731
    monkeypatch.setattr(AttentionCall, "probabilities", plain)
    rows = by_name(read(*models.gpt2()))
    assert not rows["the model's attention"].holds
    assert rows["the model's output"].holds


def test_kernels_beyond_float64_are_refused_and_counted():
    far = torch.tensor([[0.0, -4000.0, 1.0], [0.0, 0.0, 0.0], [1.0, 2.0, 0.0]]).double()
    near = head(n=3)
    both = HeadScores(
        scores=torch.stack([near.scores[0], far]), beta=0.5, q=near.q, k=near.k,
        charge=0.05, sweeps=5, rounding=2.0**-52,
    )  # fmt: skip
    one = next(one for one in IDENTITIES if one.name == "cycle affinity")
    errors = identity_errors(one, both)
    assert float(errors[0]) <= one.bound
    assert bool(errors[1].isnan())


def test_padding_changes_nothing():
    model, batch = models.llama()
    ids = batch["input_ids"]
    mask = torch.ones_like(ids)
    mask[0, 8:] = 0
    padded = read(model, {"input_ids": ids, "attention_mask": mask}, mask=mask)
    alone = read(model, {"input_ids": ids[:1, :8]})
    assert all(row.holds for row in padded.rows())
    for name in STATISTICS:
        layers = padded.statistics()[name].reshape(3, 2, 4)[:, 0].ravel()
        np.testing.assert_allclose(layers, alone.statistics()[name], rtol=1e-3, atol=1e-4)


def test_a_long_sequence_is_read_from_its_start():
    model, batch = models.gpt2()
    some = read(model, batch, tokens=6)
    short = read(model, {"input_ids": batch["input_ids"][:, :6]})
    assert all(row.holds for row in some.rows())
    for name in STATISTICS:
        np.testing.assert_allclose(
            some.statistics()[name], short.statistics()[name], rtol=1e-3, atol=1e-4
        )


def test_a_biased_causal_model_has_its_own_attention_only():
    probe = read(*models.t5())
    rows = by_name(probe)
    assert rows["the model's attention"].holds
    assert rows["attention"].heads == 0
    assert not rows["attention"].holds
    assert np.isnan(rows["attention"].error)
    assert all("bias" in reason for reason in probe.because.values())


def told(heads, causal=False):
    own = heads.beta * heads.scores
    if causal:
        own = own.masked_fill(torch.ones_like(own).triu(1).bool(), -torch.inf)
    return {name: values.double() for name, values in regime_statistics(heads, own).items()}


def test_equal_queries_and_keys_are_a_diffusion_map_at_equilibrium():
    x = 0.3 * torch.randn(2, 9, 12, generator=torch.Generator().manual_seed(3)).double()
    values = told(head(q=x, k=x))
    assert values["euclidean_D"].tolist() == [1, 1]
    assert values["negative_D"].tolist() == [0, 0]
    assert values["positive_directions"].tolist() == [8, 8]
    for name in ("phase_shift", "charge_shift", "sinkhorn_asymmetry", "sinkhorn_gap"):
        assert float(values[name].max()) < 1e-6, name
    assert float(values["entropy_production"].max()) < 1e-12
    assert float(values["displacement"].min()) > 1e-3


def test_an_indefinite_head_has_no_distance():
    x = torch.randn(1, 9, 2, generator=torch.Generator().manual_seed(3)).double()
    values = told(head(q=x, k=x * torch.tensor([1.0, -1.0])))  # D = (Δx)² − (Δy)²
    i, j = torch.triu_indices(9, 9, 1)
    gap = (x[0, i] - x[0, j]).square()
    share = (gap[:, 0] < gap[:, 1]).double().mean()
    assert float(values["negative_pairs"][0]) == pytest.approx(float(share))
    assert values["positive_directions"].tolist() == [1]
    assert values["negative_directions"].tolist() == [1]


def test_statistics_of_a_generic_head_are_those_of_numpy():
    heads = head(size=0.7)
    values, W, beta = told(heads), heads.scores[0].numpy(), heads.beta
    w = np.diag(W)
    D = w[:, None] + w - W - W.T

    def softmax(z):
        e = np.exp(z)
        return e / e.sum(1, keepdims=True)

    P, Q = softmax(beta * W), softmax(-beta * D)
    assert float(values["attention_to_diffusion"][0]) == pytest.approx(
        np.abs(P - Q).sum(1).mean() / 2
    )
    K = np.exp(-beta * D)
    g = K.sum(1)

    def eigenvalues(q):
        turn = np.exp(2j * np.pi * q * beta * (W - W.T))
        return np.linalg.eigvalsh(np.eye(9) - K * turn / np.sqrt(np.outer(g, g)))

    moved = np.abs(eigenvalues(0.1) - eigenvalues(0.05)).max()
    assert float(values["charge_shift"][0]) == pytest.approx(moved)
    turned_by = np.abs(eigenvalues(0.05) - eigenvalues(0.0)).max()
    assert float(values["phase_shift"][0]) == pytest.approx(turned_by)
    assert float(values["displacement"][0]) == pytest.approx(np.abs(P.mean(0) - 1 / 9).sum() / 2)
    assert float(values["sinkhorn_gap"].max()) < 1e-3 < float(values["sinkhorn_asymmetry"].min())


def test_walks_of_a_causal_head_end_at_the_first_token():
    assert "first_token" not in told(head())
    assert told(head(), causal=True)["first_token"].tolist() == pytest.approx([1.0, 1.0])
