"""An attention call describes its kernel exactly: P V is what the kernel returns."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from flowscope.tap import AttentionCall, Site, Tap
from flowscope.tap.kernels import REQUESTS, Request, interface_attention

SITE = Site(chain="chain", index=0, path="path", call=0, stream="x")


def _event(request: Request, groups: int = 1) -> AttentionCall:
    return AttentionCall(
        site=SITE,
        q=request.q,
        k=request.k,
        v=request.v,
        mask=request.mask,
        causal=request.causal,
        scale=request.scale,
        softcap=request.softcap,
        groups=groups,
        dropout=request.dropout,
        cross=False,
        forward=0,
        _kernel=request.kernel,
    )


def _tensors(seed, heads=4, key_heads=4, rows=5, keys=5, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)

    def draw(h, n, d):
        return torch.randn(2, h, n, d, generator=generator, dtype=torch.float64).to(dtype)

    return draw(heads, rows, 8), draw(key_heads, keys, 8), draw(key_heads, keys, 6)


def _sdpa(*args, **kwargs) -> AttentionCall:
    return _event(REQUESTS[F.scaled_dot_product_attention](*args, **kwargs))


def _weighted(call: AttentionCall, rows=None) -> torch.Tensor:
    repeats = call.q.shape[1] // call.v.shape[1]
    p = call.probabilities(rows)
    return p @ call.v.to(p.dtype).repeat_interleave(repeats, 1)


@given(
    seed=st.integers(0, 10**6),
    key_heads=st.sampled_from([1, 2, 4]),
    rows=st.integers(1, 6),
    keys=st.integers(1, 6),
    mask=st.sampled_from(["none", "bool", "additive"]),
    causal=st.booleans(),
    scale=st.sampled_from([None, 0.1, 2.0]),
)
def test_probabilities_times_values_are_the_kernels_output(
    seed, key_heads, rows, keys, mask, causal, scale
):
    q, k, v = _tensors(seed, key_heads=key_heads, rows=rows, keys=keys)
    generator = torch.Generator().manual_seed(seed)
    given_mask = None
    if mask != "none" and not causal:
        allowed = torch.rand(2, 1, rows, keys, generator=generator) < 0.6
        bias = torch.randn(2, 4, rows, keys, generator=generator, dtype=q.dtype)
        given_mask = allowed if mask == "bool" else bias
    call = _sdpa(q, k, v, given_mask, 0.0, causal, scale=scale, enable_gqa=key_heads != 4)
    torch.testing.assert_close(_weighted(call), call.output())


def test_a_row_that_may_attend_to_nothing_is_zero_as_in_the_kernel():
    q, k, v = _tensors(0)
    mask = torch.ones(5, 5, dtype=torch.bool)
    mask[2] = False
    call = _sdpa(q, k, v, mask)
    assert call.probabilities()[..., 2, :].abs().max() == 0
    torch.testing.assert_close(_weighted(call), call.output())


def test_a_causal_flag_without_a_mask_hides_the_future():
    q, k, v = _tensors(0)
    p = _sdpa(q, k, v, is_causal=True).probabilities()
    assert p.triu(1).abs().max() == 0
    torch.testing.assert_close(p.sum(-1), torch.ones_like(p[..., 0]))


@pytest.mark.parametrize("rows", [slice(1, 4), torch.tensor([4, 0, 2])])
@pytest.mark.parametrize("mask", [None, "full", "row"])
def test_asking_for_rows_gives_those_rows(rows, mask):
    q, k, v = _tensors(3)
    bias = {None: None, "full": torch.randn(5, 5), "row": torch.randn(2, 1, 1, 5)}[mask]
    call = _sdpa(q, k, v, bias, 0.0, mask is None)
    torch.testing.assert_close(call.logits(rows), call.logits()[..., rows, :])
    torch.testing.assert_close(call.probabilities(rows), call.probabilities()[..., rows, :])


def test_the_soft_cap_bounds_the_logits_and_matches_its_kernel():
    q, k, v = _tensors(1, key_heads=2)
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    arguments = (3 * q, k, v, mask, 0.7, 1.5, 0.0)
    call = _event(REQUESTS[interface_attention](*arguments), groups=2)
    finite = call.logits()[call.logits() > -torch.inf]
    assert finite.abs().max() <= 1.5
    # The kernel takes its softmax in float32, as transformers does.
    torch.testing.assert_close(_weighted(call), call.output(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_read_in_float32(dtype):
    q, k, v = _tensors(2, dtype=dtype)
    call = _sdpa(q, k, v, is_causal=True)
    exact = _sdpa(q.double(), k.double(), v.double(), is_causal=True)
    assert call.probabilities().dtype == torch.float32
    torch.testing.assert_close(
        call.probabilities().double(), exact.probabilities(), rtol=1e-5, atol=1e-6
    )


def test_autocast_around_a_listener_does_not_lower_precision():
    q, k, v = _tensors(2, dtype=torch.float32)
    call = _sdpa(q, k, v)
    expected = call.logits()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(call.logits(), expected)


def test_scores_are_raw_products():
    q, k, v = _tensors(5, key_heads=2)
    call = _sdpa(q, k, v, is_causal=True, enable_gqa=True)
    expected = torch.einsum("bhid,bhjd->bhij", q, k.repeat_interleave(2, 1))
    torch.testing.assert_close(call.scores(), expected)


def test_three_dimensional_calls_are_read_too():
    q, k, v = (x[0] for x in _tensors(7))
    call = _sdpa(q, k, v, is_causal=True)
    torch.testing.assert_close(call.probabilities() @ v, call.output())


def test_sites_are_keys():
    assert {SITE: 1}[Site(chain="chain", index=0, path="path", call=0, stream="x")] == 1


def test_calls_outside_every_block_are_numbered_in_their_order():
    class Twice(torch.nn.Module):
        def forward(self, x):
            x = F.scaled_dot_product_attention(x, x, x)
            return F.scaled_dot_product_attention(x, x, x)

    model, sites = Twice().eval(), []
    with Tap(model) as tap:
        tap.on_attention(lambda call: sites.append((call.site.chain, call.site.index)))
        for _ in range(2):
            model(torch.randn(1, 1, 3, 4))
    assert sites == 2 * [("outside", 0), ("outside", 1)]
