"""Public functions of the mathematics on hostile numbers, in float32 and float64.

The same table is tried with 2,000 examples a function by ``make attack``.
"""

import importlib
import inspect

import numpy as np
import pytest
import torch
from benchmarks.attack.fuzz import attacked, table
from benchmarks.attack.subject import Subject
from benchmarks.attack.subjects import EXCEPTIONS, SUBJECTS

from flowscope import markov
from flowscope.errors import InvalidInputError

EXAMPLES = 60
PACKAGES = {
    "simplex": ["simplex"],
    "transport": ["transport"],
    "markov": ["markov"],
    "flows": [
        "flows",
        "flows.drift",
        "flows.hodge",
        "flows.sampling",
        "flows.score",
        "flows.entropy",
        "flows.sphere",
        "flows.potential",
    ],
    "pde": ["pde"],
    "replica": ["replica"],
}
ARRAYS = (
    "Tensor", "ndarray", "NDArray", "ArrayLike", "Gram", "DriftSample", "SlopeSums", "MeanFlow",
)  # fmt: skip


def functions_of_arrays():
    """Names of public functions whose signature names an array."""
    names = set()
    for package, modules in PACKAGES.items():
        for module in map(importlib.import_module, (f"flowscope.{m}" for m in modules)):
            for name in module.__all__:
                value = getattr(module, name)
                if inspect.isfunction(value) and any(
                    word in str(parameter.annotation)
                    for parameter in inspect.signature(value).parameters.values()
                    for word in ARRAYS
                ):
                    names.add(f"{package}.{name}")
    return names


@pytest.mark.parametrize("name", table())
def test_no_hostile_number_gives_nan_a_raw_error_or_another_number_in_float32(name):
    counts = attacked(name, EXAMPLES)
    expected = max(1, round(EXAMPLES * SUBJECTS[name].share))
    assert counts["examples"] >= expected
    assert counts["values"] > 0, "every example was refused: the table tries nothing"


def test_every_public_function_of_arrays_is_in_the_table_or_says_why_not():
    missing = functions_of_arrays() - set(SUBJECTS) - set(EXCEPTIONS)
    assert not missing
    assert not set(SUBJECTS) & set(EXCEPTIONS)
    assert all(len(reason) > 10 for reason in EXCEPTIONS.values())


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * torch.nan,
        lambda x: x.reshape(-1)[7],
        lambda x: x + x.abs().max() * (1e-3 if x.dtype == torch.float32 else 0.0),
    ],
    ids=["NaN", "raw error", "another number"],
)
def test_the_harness_sees_what_it_is_for(monkeypatch, function):
    """Each kind of failure is reported for a function that has it."""
    subject = Subject(function=function, arguments=lambda draw: {"x": draw.array(3, unbroken=True)})
    monkeypatch.setitem(SUBJECTS, "planted", subject)
    with pytest.raises(BaseException, match=r"NaN|raw|differs"):
        attacked("planted", EXAMPLES)


def test_attention_kernel_of_scores_whose_product_with_beta_overflows():
    scores = torch.tensor([[1e33, 0.0], [0.0, 1e33]])
    assert torch.equal(markov.attention_kernel(scores, 1e8), torch.eye(2))
    masked = torch.tensor([[1e33, -torch.inf], [3e38, -3e38]])
    assert torch.equal(markov.attention_kernel(masked, 1e8), torch.eye(2)[[0, 0]])


def test_a_result_beyond_the_range_says_what_to_do():
    with pytest.raises(InvalidInputError, match="pass float64"):
        markov.operator_square(torch.full((2, 2), 1e15), torch.full((2, 2), 1e15), 1e20)


def test_time_reversal_takes_the_law_that_stationary_distribution_returns():
    kernel = torch.tensor([[0.0, 0.75, 0.25], [0.25, 0.0, 0.75], [0.75, 0.25, 0.0]])
    reversed_ = markov.time_reversal(kernel, markov.stationary_distribution(kernel))
    np.testing.assert_allclose(reversed_, kernel.mT, atol=1e-6)
