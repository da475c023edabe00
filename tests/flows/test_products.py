"""Products with half-precision weights: what they lose, and where they are written."""

import pytest
import torch
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.flows import products
from flowscope.flows.products import (
    LinearProduct,
    exact_product,
    own_product,
    split_parts,
    split_product,
)

DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
        ],
    ),
]


def operands(device, dtype, rows=40, width=300, outcomes=170):
    """States whose sizes span six decades from row to row, and half-precision weights."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, width, generator=generator)
    x = x * torch.logspace(-3, 3, rows)[:, None]
    weight = torch.randn(outcomes, width, generator=generator).to(dtype)
    return x.to(device), weight.to(device)


def relative_error(z, x, weight):
    """Largest error of a row against its largest entry, in float64; sums themselves cost 2^-21."""
    exact = x.double() @ weight.double().mT
    return float(((z.double() - exact).abs().amax(1) / exact.abs().amax(1)).max())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dtype", "bits"), [(torch.bfloat16, 16), (torch.float16, 20)])
def test_two_parts_keep_the_bits_of_both(device, dtype, bits):
    x, weight = operands(device, dtype)
    z = split_product(x, weight)
    assert z.dtype == torch.float32
    assert relative_error(z, x, weight) < 2.0**-bits
    assert relative_error(own_product(x.clamp(-6e4, 6e4), weight), x, weight) > 2.0**-12.5


@pytest.mark.parametrize("device", DEVICES)
def test_one_product_with_a_weight_laid_out_twice_keeps_the_bits_too(device, monkeypatch):
    x, weight = operands(device, torch.bfloat16)
    monkeypatch.setattr(products, "has_wide_result", lambda weight: True)
    joined = exact_product(weight)
    assert exact_product(weight, stays=False) is split_product
    monkeypatch.undo()
    assert joined is not split_product
    z = torch.empty(len(x), len(weight), device=device)
    assert joined(x, weight, out=z) is z
    assert relative_error(z, x, weight) < 2.0**-16


def test_a_device_without_room_for_a_copy_multiplies_twice(monkeypatch):
    def full(tensors, dim):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(products, "has_wide_result", lambda weight: True)
    monkeypatch.setattr(torch, "cat", full)
    assert exact_product(torch.zeros(3, 2, dtype=torch.bfloat16)) is split_product


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_large_weights_and_other_dtypes_are_not_copied(device, dtype, monkeypatch):
    _, weight = operands(device, dtype)
    monkeypatch.setattr(products, "_TWICE", weight.nbytes - 1)
    assert exact_product(weight) is split_product


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_own_operands_are_the_rounded_state_with_exact_sums(device, dtype):
    x, weight = operands(device, dtype, rows=20)
    x = x.clamp(-100, 100)
    rounded = x.to(dtype)
    for z in (own_product(x, weight), own_product(x, weight.float(), dtype=dtype)):
        assert z.dtype == torch.float32
        assert relative_error(z, rounded, weight) < 2.0**-20


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("product", [split_product, own_product])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_result_is_written_where_it_is_asked_for(device, product, dtype):
    """Also into rows that are longer than the result, as those of an accelerator are."""
    x, weight = operands(device, dtype, rows=8)
    x = x.clamp(-100, 100)
    out = torch.full((8, 192), torch.nan, device=device)[:, : len(weight)]
    assert product(x, weight, out=out).data_ptr() == out.data_ptr()
    assert_close(out, product(x, weight), rtol=1e-5, atol=1e-3)


def test_a_product_adds_its_bias_and_keeps_leading_axes():
    x, weight = operands("cpu", torch.bfloat16, rows=6)
    bias = torch.arange(float(len(weight)))
    z = LinearProduct(split_product)(x.reshape(2, 3, -1), weight, bias)
    assert_close(z.reshape(6, -1), split_product(x, weight) + bias)


def test_float32_weights_have_no_parts():
    with pytest.raises(InvalidInputError, match="bfloat16 or float16"):
        split_parts(torch.zeros(1, 1), torch.float32)
