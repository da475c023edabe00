"""A fixed number of Sinkhorn iterations on attention logits: laws, limits and other routes."""

import itertools
import math

import numpy as np
import ot
import pytest
import torch
from scipy.optimize import minimize

from flowscope.errors import InvalidInputError
from flowscope.transport.iterations import (
    causal_columns,
    column_error,
    even_columns,
    online_attention,
    prescribed_attention,
    sinkhorn_attention,
    spread_columns,
    unbalanced_attention,
)

INF = torch.inf


def logits(*shape, seed=0, dtype=torch.float64):
    return 2 * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def causal(z):
    return z.masked_fill(torch.ones(z.shape[-2:]).triu(1) > 0, -INF)


FAMILY = {
    "sinkhorn": lambda z, k: sinkhorn_attention(z, k),
    "unbalanced": lambda z, k: unbalanced_attention(z, k, 2.0),
    "prescribed": lambda z, k: prescribed_attention(z, target(z), k),
}


def target(z):
    weights = torch.linspace(1, 2, z.shape[-1], dtype=torch.promote_types(z.dtype, torch.float32))
    return z.shape[-2] * weights / weights.sum()


@pytest.fixture(params=FAMILY)
def attention(request):
    return FAMILY[request.param]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zero_iterations_are_exactly_the_softmax(attention, dtype):
    z = logits(2, 3, 5, 7, dtype=dtype)
    assert torch.equal(attention(z, 0), torch.softmax(z, -1))


@pytest.mark.parametrize("iterations", [1, 2, 7])
def test_rows_are_probability_vectors_whatever_the_number_of_iterations(attention, iterations):
    p = attention(logits(3, 6, 4), iterations)
    assert (p >= 0).all()
    torch.testing.assert_close(p.sum(-1), torch.ones(3, 6, dtype=p.dtype), rtol=0, atol=1e-14)


def test_a_row_shift_leaves_attention_unchanged(attention):
    z, shift = logits(6, 4), logits(6, 1, seed=1)
    torch.testing.assert_close(attention(z + shift, 3), attention(z, 3), rtol=1e-12, atol=1e-14)


def test_a_batch_is_its_members(attention):
    z = logits(2, 3, 5, 4)
    alone = torch.stack([torch.stack([attention(h, 3) for h in b]) for b in z])
    torch.testing.assert_close(attention(z, 3), alone, rtol=1e-12, atol=1e-14)


def test_equal_columns_are_reached_and_the_error_falls():
    z = logits(9, 6)
    errors = [
        column_error(sinkhorn_attention(z, k), torch.full((6,), 1.5, dtype=z.dtype)).item()
        for k in (0, 1, 2, 4, 8, 200)
    ]
    assert all(a > b for a, b in itertools.pairwise(errors))
    assert errors[-1] < 1e-13


def test_balanced_attention_is_the_coupling_of_pot():
    z = logits(5, 7)
    coupling = ot.sinkhorn(
        np.full(5, 1 / 5), np.full(7, 1 / 7), -z.numpy(), 1.0, "sinkhorn_log", 20_000, 1e-15
    )
    np.testing.assert_allclose(sinkhorn_attention(z, 500) / 5, coupling, rtol=1e-9)


def test_iterations_are_the_alternating_normalisations_of_sinkformers():
    z, k = logits(6, 6), 3
    kernel = z.exp()
    for step in range(2 * k + 1):
        kernel = kernel / kernel.sum(-1 if step % 2 == 0 else -2, keepdim=True)
    torch.testing.assert_close(sinkhorn_attention(z, k), kernel, rtol=1e-12, atol=0)


def test_a_column_shift_is_undone_by_balanced_attention():
    """Why a mask must be −∞: a finite one is a column shift."""
    z, shift = logits(6, 6), torch.tensor([0.0, 0, 0, 0, 0, -1e4])
    torch.testing.assert_close(
        sinkhorn_attention(z + shift, 300), sinkhorn_attention(z, 300), rtol=1e-9, atol=1e-12
    )
    assert softmax_column(z + shift) < 1e-300


def softmax_column(z):
    return torch.softmax(z, -1)[:, -1].sum()


def test_error_of_the_two_by_two_problem_falls_by_tanh_squared():
    """Cost [[0, c], [c, 0]], ε = 1, perturbed by a column gauge: exact rate tanh²(c/2) a sweep."""
    c = 1.0
    z = torch.tensor([[0.0, -c], [-c, 0.0]], dtype=torch.float64) + torch.tensor([1e-3, 0.0])
    one = torch.ones(2, dtype=torch.float64)
    errors = [column_error(sinkhorn_attention(z, k), one).item() for k in (3, 4)]
    assert errors[1] / errors[0] == pytest.approx(math.tanh(c / 2) ** 2, rel=1e-4)
    assert errors[1] / errors[0] == pytest.approx(0.21355, abs=1e-4)


def relaxed_objective(z, c, rho):
    def value(flat):
        p = torch.softmax(torch.tensor(flat).reshape(z.shape).requires_grad_(True), -1)
        kl = torch.special.xlogy(p, p) - z * p
        s = p.sum(0)
        return kl.sum() + rho * (torch.special.xlogy(s, s / c) - s + c).sum()

    def with_gradient(flat):
        x = torch.tensor(flat, requires_grad=True)
        p = torch.softmax(x.reshape(z.shape), -1)
        s = p.sum(0)
        loss = (torch.special.xlogy(p, p) - z * p).sum()
        loss = loss + rho * (torch.special.xlogy(s, s / c) - s + c).sum()
        return loss.item(), torch.autograd.grad(loss, x)[0].numpy()

    return with_gradient


@pytest.mark.parametrize("rho", [0.3, 2.0])
@pytest.mark.parametrize("given", [False, True])
def test_unbalanced_attention_minimises_its_objective(rho, given):
    """Against a general-purpose minimiser over row-stochastic matrices."""
    z = logits(4, 5)
    c = target(z) if given else torch.full((5,), 4 / 5, dtype=z.dtype)
    found = minimize(
        relaxed_objective(z, c, rho), np.zeros(20), jac=True, method="BFGS", options={"gtol": 1e-10}
    )
    expected = torch.softmax(torch.tensor(found.x).reshape(4, 5), -1)
    ours = unbalanced_attention(z, 300, rho, columns=target(z) if given else None)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-7)


def test_relaxation_goes_from_softmax_to_balanced():
    z = logits(6, 4)
    assert torch.equal(unbalanced_attention(z, 9, 0.0), torch.softmax(z, -1))
    assert torch.equal(unbalanced_attention(z, 9, INF), sinkhorn_attention(z, 9))
    far = unbalanced_attention(z, 2000, 1e7)
    torch.testing.assert_close(far, sinkhorn_attention(z, 2000), rtol=0, atol=1e-6)


def test_prescribed_columns_are_reached_under_a_causal_mask():
    z, c = causal(logits(2, 8, 8)), causal_columns(8, 0.4)
    p = prescribed_attention(z, c, 400)
    assert column_error(p, c).max() < 1e-12
    assert (p.triu(1) == 0).all()


def test_equal_columns_under_a_causal_mask_are_refused():
    with pytest.raises(InvalidInputError, match=r"first 1 of 5 columns .*between 1 and 5.*got 1\."):
        sinkhorn_attention(causal(logits(5, 5)), 1)
    assert torch.equal(
        sinkhorn_attention(causal(logits(5, 5)), 0), torch.softmax(causal(logits(5, 5)), -1)
    )


def test_strong_relaxation_under_a_causal_mask_tends_to_the_identity():
    """What a balanced causal attention would be, and why it is refused."""
    z = causal(logits(4, 4))
    gaps = [
        (unbalanced_attention(z, 20_000, rho) - torch.eye(4, dtype=z.dtype)).abs().max().item()
        for rho in (1.0, 10.0, 100.0)
    ]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 0.15


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ([1.5, 1.0, 0.5], None),
        ([1.0, 1.2, 0.8], r"first 1 of 3 columns must lie strictly between 1 and 3 .*got 1\."),
        ([1.5, 0.4, 1.1], r"first 2 of 3 .*between 2 and 3 \(2 queries.*got 1\.9\."),
        ([1.5, 1.0, 0.6], r"first 3 of 3 columns must be 3 .*got 3\.1\."),
        ([3.0, -0.5, 0.5], "strictly between 1 and 3"),
    ],
)
def test_the_first_prefix_that_breaks_causality_is_named(columns, words):
    z, c = causal(logits(3, 3)), torch.tensor(columns, dtype=torch.float64)
    if words is None:
        prescribed_attention(z, c, 1)
        return
    with pytest.raises(InvalidInputError, match=words):
        prescribed_attention(z, c, 1)


def test_the_prefix_rule_decides_reachability_under_a_window():
    """Against linear programming, over masses near the border."""
    from scipy.optimize import linprog

    n, width = 5, 3
    row, column = torch.arange(n)[:, None], torch.arange(n)
    allowed = (column <= row) & (column > row - width)
    z = torch.zeros(n, n, dtype=torch.float64).masked_fill(~allowed, -INF)
    rng = np.random.default_rng(0)
    cells = allowed.nonzero().numpy()
    rows = np.array([[float(i == r) for i, _ in cells] for r in range(n)])
    columns = np.array([[float(j == r) for _, j in cells] for r in range(n)])
    seen = set()
    for _ in range(60):
        c = spread_columns(z).numpy() * np.exp(0.5 * rng.standard_normal(n))
        c *= n / c.sum()
        program = linprog(
            np.zeros(len(cells)), A_eq=np.r_[rows, columns], b_eq=np.r_[np.ones(n), c]
        )
        try:
            prescribed_attention(z, torch.tensor(c), 1)
            reached = True
        except InvalidInputError:
            reached = False
        assert reached == (program.status == 0)
        seen.add(reached)
    assert seen == {True, False}


def test_packed_sequences_are_judged_one_by_one():
    allowed = torch.block_diag(torch.ones(2, 2), torch.ones(3, 3)) > 0
    z = logits(5, 5).masked_fill(~allowed, -INF)
    p = sinkhorn_attention(z, 300)
    torch.testing.assert_close(p[:2, :2], sinkhorn_attention(z[:2, :2], 300))
    c = torch.tensor([1.5, 1.0, 0.5, 1.0, 1.0], dtype=z.dtype)
    with pytest.raises(InvalidInputError, match=r"first 2 of 5 columns must be 2 .*got 2\.5"):
        prescribed_attention(z, c, 1)


@pytest.mark.parametrize("evenness", [0.0, 0.5, 0.99])
def test_causal_columns_are_strictly_reachable(evenness):
    c = causal_columns(50, evenness)
    i = torch.arange(1, 50, dtype=torch.float64)
    harmonic = (1 / torch.arange(1, 51, dtype=torch.float64)).cumsum(0)
    slack = (1 - evenness) * i * (harmonic[-1] - harmonic[:-1])
    torch.testing.assert_close(c.cumsum(0)[:-1] - i, slack, rtol=0, atol=1e-12)
    assert c.sum().item() == pytest.approx(50)


def test_causal_columns_without_evenness_are_those_of_uniform_attention():
    z = causal(torch.zeros(7, 7, dtype=torch.float64))
    torch.testing.assert_close(causal_columns(7), spread_columns(z))
    torch.testing.assert_close(torch.softmax(z, -1).sum(0), spread_columns(z))
    with pytest.raises(InvalidInputError, match="evenness < 1"):
        causal_columns(7, 1.0)


@pytest.mark.parametrize("rho", [0.5, 5.0, math.inf])
def test_one_online_iteration_is_the_last_row_of_every_prefix(rho):
    z = causal(logits(2, 8, 8))
    p = online_attention(z, 1, rho)
    for i in range(1, 9):
        alone = unbalanced_attention(z[:, :i, :i], 1, rho)[:, -1]
        torch.testing.assert_close(p[:, i - 1, :i], alone, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("iterations", [1, 4])
def test_online_attention_of_a_prefix_is_the_prefix(iterations):
    """Nothing later has a say, whatever the number of iterations; whole sums are not so."""
    z = causal(logits(8, 8))
    for attend, same in ((online_attention, True), (unbalanced_attention, False)):
        whole, part = attend(z, iterations, 2.0)[:5, :5], attend(z[:5, :5], iterations, 2.0)
        assert torch.allclose(whole, part, rtol=1e-12) == same


def test_online_attention_lowers_the_column_error():
    z, one = causal(logits(8, 8)), torch.ones(8, dtype=torch.float64)
    found = [column_error(online_attention(z, k, 5.0), one).item() for k in (0, 1, 3, 20)]
    assert all(later < earlier for earlier, later in itertools.pairwise(found))
    assert found[-1] < 0.5 * found[0]
    assert torch.equal(online_attention(z, 5, 0.0), torch.softmax(z, -1))


def test_online_attention_with_left_padding_is_that_of_the_rest():
    z = causal(logits(8, 8))
    frame = torch.full((11, 11), -INF, dtype=z.dtype)
    frame[3:, 3:] = z
    p = online_attention(frame, 3, 2.0)
    torch.testing.assert_close(p[3:, 3:], online_attention(z, 3, 2.0), rtol=1e-12, atol=1e-14)
    assert (p[:3] == 0).all()
    assert (p[:, :3] == 0).all()


def test_online_gradients_are_those_of_finite_differences():
    z = causal(logits(5, 5))
    z[1] = -INF  # an empty row, too
    keep, weights = torch.isfinite(z), logits(5, 5, seed=3)
    queries = torch.tensor([True, True, True, False, True])
    base = torch.where(keep, z, 0.0).requires_grad_(True)
    assert torch.autograd.gradcheck(
        lambda x: weights * online_attention(x.masked_fill(~keep, -INF), 3, 2.0, queries=queries),
        (base,),
    )


def padded(z, live):
    """Square problem in a larger frame: masked keys, rows of padding that still see live keys."""
    n = z.shape[-1]
    frame = torch.full((n + live, n + live), -INF, dtype=z.dtype)
    frame[:n, :n] = z
    frame[n:, :n] = logits(live, n, seed=5)
    return frame


@pytest.mark.parametrize("kind", ["sinkhorn", "unbalanced"])
def test_padding_changes_nothing(kind):
    z = logits(6, 6)
    frame = padded(z, 3)
    queries = torch.arange(9) < 6
    p = {
        "sinkhorn": lambda: sinkhorn_attention(frame, 4, queries=queries),
        "unbalanced": lambda: unbalanced_attention(frame, 4, 2.0, queries=queries),
    }[kind]()
    torch.testing.assert_close(p[:6, :6], FAMILY[kind](z, 4), rtol=1e-12, atol=1e-14)
    assert (p[:, 6:] == 0).all()
    assert torch.equal(p[6:], torch.softmax(frame[6:], -1))
    c = even_columns(frame, queries=queries)
    assert c.tolist() == [1.0] * 6 + [0.0] * 3


def test_an_empty_row_is_zero_and_counts_nowhere():
    z = logits(6, 5)
    holed = torch.cat([z[:2], torch.full((1, 5), -INF, dtype=z.dtype), z[2:]])
    p = sinkhorn_attention(holed, 4)
    assert (p[2] == 0).all()
    torch.testing.assert_close(p[[0, 1, 3, 4, 5, 6]], sinkhorn_attention(z, 4))


def test_a_batch_member_without_any_live_pair_is_zero():
    z = torch.stack([logits(3, 3), torch.full((3, 3), -INF, dtype=torch.float64)])
    p = sinkhorn_attention(z.float(), 12)
    assert (p[1] == 0).all()
    torch.testing.assert_close(p[0], sinkhorn_attention(z[0].float(), 12))


@pytest.mark.parametrize("kind", FAMILY)
def test_gradients_are_those_of_finite_differences(kind):
    z = logits(3, 4).requires_grad_(True)
    assert torch.autograd.gradcheck(lambda x: FAMILY[kind](x, 3), (z,))


def test_gradients_are_finite_through_masks_and_padding():
    frame = padded(logits(4, 4), 2)
    frame = torch.cat([frame, torch.full((1, 6), -INF, dtype=frame.dtype)])
    keep = torch.isfinite(frame)
    weights = logits(7, 6, seed=3)
    queries = torch.arange(7) < 4
    base = torch.where(keep, frame, 0.0).requires_grad_(True)

    def loss(x):
        return (weights * unbalanced_attention(
            x.masked_fill(~keep, -INF), 3, 4.0, queries=queries)).sum()  # fmt: skip

    assert torch.autograd.gradcheck(loss, (base,))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_widened_first(attention, dtype):
    z = logits(6, 6).to(dtype)
    p = attention(z, 5)
    assert p.dtype == torch.float32
    assert torch.equal(p, attention(z.float(), 5))


def test_peaked_logits_do_not_overflow():
    z = 3e3 * logits(6, 6, dtype=torch.float32)
    p = sinkhorn_attention(z, 3)
    assert torch.isfinite(p).all()
    torch.testing.assert_close(p.sum(-1), torch.ones(6))


@pytest.mark.parametrize(
    ("attend", "words"),
    [
        (lambda z: sinkhorn_attention(z, -1), "whole number >= 0; got -1"),
        (lambda z: sinkhorn_attention(z, 1.0), "whole number >= 0; got 1.0"),
        (lambda z: sinkhorn_attention(z / 0, 1), "found NaN or"),
        (lambda z: sinkhorn_attention(z[0], 1), r"\(\.\.\., queries, keys\); got .*\(4,\)"),
        (lambda z: sinkhorn_attention(z.long(), 1), "got torch.int64"),
        (lambda z: unbalanced_attention(z, 1, -0.5), "zero or positive; got -0.5"),
        (lambda z: unbalanced_attention(z, 1, math.nan), "zero or positive; got nan"),
        (lambda z: prescribed_attention(z, z[0, :3], 1), "needs 4 masses, one a key; got 3"),
        (lambda z: unbalanced_attention(z, 1, 1.0, columns=0 * z[0]), "positive, finite column"),
    ],
)
def test_what_is_not_attention_is_refused(attend, words):
    with pytest.raises(InvalidInputError, match=words):
        attend(logits(4, 4))
