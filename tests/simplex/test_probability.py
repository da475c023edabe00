"""What a probability vector must be, and the sentence each refusal says."""

import math
import warnings

import numpy as np
import pytest
import torch

from flowscope import simplex
from flowscope.errors import InvalidInputError

V = 8


def row(dtype: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.softmax(torch.randn(3, V, generator=generator, dtype=torch.float64), -1).to(dtype)


ON_P = {
    "entropy": simplex.entropy,
    "total_variation": lambda p: simplex.total_variation(p, row()),
    "kl_divergence": lambda p: simplex.kl_divergence(p, row()),
    "apply_mobility": lambda p: simplex.apply_mobility(p, torch.ones(V)),
    "mobility_trace": simplex.mobility_trace,
    "mobility_frobenius": simplex.mobility_frobenius,
    "mobility_norm": simplex.mobility_norm,
    "mobility_spectrum": lambda p: simplex.mobility_spectrum(p, 2),
    "effective_mobility": lambda p: simplex.effective_mobility(p, torch.ones(2, V), 1.0),
    "locking_bound": lambda p: simplex.locking_bound(p, 1.0),
    "mirror_step": lambda p: simplex.mirror_step(p, torch.ones(V), 1.0),
    "replicator_flow": lambda p: simplex.replicator_flow(p, torch.ones(V), 1.0),
}
every_function = pytest.mark.parametrize("function", ON_P.values(), ids=ON_P.keys())


@every_function
def test_a_wrong_sum_is_refused_with_its_size_and_row(function):
    p = row()
    p[1] = p[1] * 1.001
    with pytest.raises(InvalidInputError, match=r"row \(1,\) sums to 1\.001.*off by \+0\.001"):
        function(p)


@every_function
def test_a_negative_entry_is_refused_with_its_value_and_place(function):
    p = row()
    p[2, 5] = -0.25
    p[2, 0] += 1 - p[2].sum()
    with pytest.raises(InvalidInputError, match=r"-0\.25 at \(2, 5\)"):
        function(p)


@every_function
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_an_entry_that_is_not_finite_is_refused_with_its_place(function, value):
    p = row()
    p[0, 3] = value
    with pytest.raises(InvalidInputError, match=rf"{value} at \(0, 3\)"):
        function(p)


@every_function
def test_one_outcome_is_refused(function):
    with pytest.raises(InvalidInputError, match=r"at least two outcomes.*shape \(3, 1\)"):
        function(torch.ones(3, 1))


@every_function
def test_a_bare_number_is_refused(function):
    with pytest.raises(InvalidInputError, match=r"outcome axis.*shape \(\)"):
        function(torch.tensor(1.0))


@every_function
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_a_dtype_that_is_not_floating_is_refused(function, dtype):
    with pytest.raises(InvalidInputError, match=r"floating-point.*found torch\."):
        function(torch.eye(V).to(dtype))


@every_function
def test_words_are_refused(function):
    with pytest.raises(InvalidInputError, match="could not be read"):
        function(["a", "b"])


@pytest.mark.parametrize("p", [[[0.5, 0.5], [1.0]], None, np.array(["x", "y"]), object()])
def test_what_is_not_an_array_of_numbers_is_refused(p):
    with pytest.raises(InvalidInputError):
        simplex.entropy(p)


@every_function
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_the_tolerance_is_set_by_the_dtype_of_the_input(function, dtype):
    p = torch.zeros(V, dtype=dtype)
    p[0] = 1 + 8 * torch.finfo(dtype).eps
    with pytest.raises(InvalidInputError, match="sum"):
        function(p)
    p[0] = 1 + 2 * torch.finfo(dtype).eps  # rounding: the bound is 5
    function(p)


def test_softmax_of_its_own_dtype_is_always_accepted():
    # √V·eps alone would refuse a few float64 rows in a million at V = 3…12, and most of the others:
    # torch adds the exponentials of a row one after the other in a handful of lanes.
    generator = torch.Generator().manual_seed(0)
    for v in (3, 5, 6, 8, 9, 12):
        z = torch.randn(200_000, v, generator=generator, dtype=torch.float64)
        simplex.mobility_trace(torch.softmax(z, -1))
    for v in (8192, 50_257, 151_936):
        peak = torch.logit(torch.linspace(0.05, 0.95, 40)) + math.log(v - 1)
        z = torch.cat([peak[:, None], torch.zeros(40, v - 1)], -1)
        simplex.mobility_norm(torch.softmax(z, -1))  # misses one by up to 11√V·eps


def test_the_tolerance_is_at_least_four_units():
    units = torch.finfo(torch.float64).eps
    simplex.entropy([1.0, 4 * units])
    with pytest.raises(InvalidInputError, match="sum"):
        simplex.entropy([1.0, 5 * units])


def test_the_tolerance_grows_with_the_outcomes():
    p = torch.full((10_000,), 1e-4)
    tolerance = (100 + 1250) * torch.finfo(torch.float32).eps
    simplex.entropy(p * (1 + 0.9 * tolerance))
    with pytest.raises(InvalidInputError, match="sum"):
        simplex.entropy(p * (1 + 1.1 * tolerance))


def test_a_row_of_zeros_is_refused_even_where_the_dtype_tolerates_any_sum():
    p = torch.zeros(40_000, dtype=torch.bfloat16)  # √V·eps = 1.6
    with pytest.raises(InvalidInputError, match="sums to 0"):
        simplex.mobility_norm(p)


def test_statistics_are_those_of_the_normalised_vector():
    p = torch.softmax(torch.linspace(0, 3, 10_000), -1)
    drifted = p * (1 + 5e-6)
    for function in (simplex.entropy, simplex.mobility_norm, simplex.mobility_frobenius):
        torch.testing.assert_close(function(drifted), function(p), rtol=5e-7, atol=0)


def test_lists_become_float64_and_numpy_keeps_its_dtype():
    assert simplex.entropy([1, 0]).dtype == torch.float64
    assert simplex.entropy(np.array([0.5, 0.5], dtype=np.float32)).dtype == torch.float32
    assert simplex.entropy(np.array([0.5, 0.5], dtype=np.float16)).dtype == torch.float32
    torch.testing.assert_close(simplex.entropy([[0.5, 0.5]]), torch.tensor([2.0]).double().log())


def test_numpy_views_are_read_as_they_are_indexed():
    p = np.array([0.5, 0.3, 0.2])
    frozen = p.copy()
    frozen.setflags(write=False)
    v = np.array([1.0, 2.0, 4.0])
    expected = simplex.apply_mobility(p[::-1].copy(), v)
    torch.testing.assert_close(simplex.apply_mobility(p[::-1], v), expected)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns of an array it could write to and may not
        torch.testing.assert_close(simplex.entropy(frozen), simplex.entropy(p))


@every_function
def test_the_input_is_left_as_it_was(function):
    p = row()
    before = p.clone()
    function(p)
    assert torch.equal(p, before)


def test_shapes_that_do_not_match_are_refused():
    p = row()
    with pytest.raises(InvalidInputError, match=r"p has 8 outcomes and q has 5"):
        simplex.kl_divergence(p, torch.full((5,), 0.2))
    with pytest.raises(InvalidInputError, match=r"p has 8 outcomes and v has 7"):
        simplex.apply_mobility(p, torch.ones(7))
    with pytest.raises(InvalidInputError, match=r"\(3,\) and \(2,\)"):
        simplex.total_variation(p, row()[:2])
    with pytest.raises(InvalidInputError, match=r"\(3,\) and \(4,\)"):
        simplex.locking_bound(p, torch.ones(4))
    with pytest.raises(InvalidInputError, match=r"\(3,\) and \(4,\)"):
        simplex.mirror_step(p, torch.ones(V), torch.ones(4))


def test_a_vector_that_is_not_finite_is_refused():
    for function in (simplex.apply_mobility, lambda p, b: simplex.replicator_flow(p, b, 1.0)):
        with pytest.raises(InvalidInputError, match=r"finite.*inf at \(7,\)"):
            function(row(), torch.tensor([0.0] * 7 + [math.inf]))
    with pytest.raises(InvalidInputError, match=r"finite.*nan at \(1,\)"):
        simplex.project_to_simplex([0.0, math.nan])
    with pytest.raises(InvalidInputError, match=r"finite.*inf at \(1,\)"):
        simplex.oscillation([0.0, math.inf])


def test_a_mixed_pair_is_computed_in_the_wider_dtype():
    assert simplex.kl_divergence(row(torch.float32), row()).dtype == torch.float64
    assert simplex.apply_mobility(row(torch.bfloat16), torch.ones(V)).dtype == torch.float32
