"""The depth meter against the float64 reference, and what it refuses."""

import warnings
from itertools import pairwise
from threading import Thread

import pytest
import torch
from torch.testing import assert_close

from flowscope import flows
from flowscope.errors import InvalidInputError, MeasureWarning
from flowscope.flows import eager, engines, meter, sweep_kernels, swept

EVERY = slice(None)


def noise(seed: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def states(rows: int = 12, vocabulary: int = 1000) -> torch.Tensor:
    """Plain rows, four near a vertex, one with equal maxima, one uniform; far from mean zero."""
    z = 3 * noise(0, rows, vocabulary) - 40
    z[:4, 7] += torch.tensor([20.0, 45.0, 60.0, 80.0])
    z[4, [3, 9]] = z[4].max() + 2
    z[5] = -31.25
    return z


def path(size: float, dtype: torch.dtype, layers: int = 3) -> list[torch.Tensor]:
    z = [states().to(dtype)]
    for layer in range(layers):
        z.append((z[-1].double() + size * noise(layer + 1, *z[-1].shape)).to(dtype))
    return z


def compare(found, reference, rtol):
    for name, value in vars(reference).items():
        # The absolute part is for uniform rows alone, whose spread and margin are exactly zero.
        assert_close(
            vars(found)[name], value, rtol=rtol, atol=1e-30, msg=lambda m, name=name: f"{name}: {m}"
        )


def check_path(instrument: flows.DepthMeter, z: list[torch.Tensor], rtol: float) -> None:
    compare(instrument.start(EVERY, z[0]), flows.state_statistics(z[0]), rtol)
    for before, after in pairwise(z):
        state, step = instrument.advance(EVERY, after)
        compare(state, flows.state_statistics(after), rtol)
        compare(step, flows.step_statistics(before, after), rtol)


@pytest.fixture(scope="module")
def compiled() -> flows.DepthMeter:
    """One compilation for the module."""
    instrument = flows.DepthMeter(12, 1000, mode="compiled")
    if instrument.mode == "eager":
        pytest.skip(f"no compiled mode here: {instrument.fallback}")
    return instrument


@pytest.mark.parametrize("size", [5.0, 0.3, 1e-2, 1e-3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_eager_statistics_are_those_of_the_reference(size, dtype):
    check_path(flows.DepthMeter(12, 1000, dtype=dtype), path(size, dtype), 1e-4)


@pytest.mark.parametrize("size", [5.0, 1e-2, 1e-6])
def test_float64_stays_float64(size):
    check_path(flows.DepthMeter(12, 1000, dtype=torch.float64), path(size, torch.float64), 1e-8)


@pytest.mark.parametrize("size", [5.0, 0.3, 1e-2, 1e-3])
def test_compiled_statistics_are_those_of_the_reference(compiled, size):
    check_path(compiled, path(size, torch.float32), 1e-4)


def test_compiled_statistics_do_not_depend_on_the_chunks(compiled):
    """Blocks of several lengths run through one compilation, single rows through none."""
    z = path(0.5, torch.float32, layers=1)
    compiled.start(EVERY, z[0])
    whole = compiled.advance(EVERY, z[1])
    for begin, end in [(0, 5), (5, 6), (6, 12)]:
        compiled.start(slice(begin, end), z[0][begin:end])
    chunks = [slice(6, 12), slice(5, 6), slice(0, 5)]
    parts = {rows.start: compiled.advance(rows, z[1][rows]) for rows in chunks}
    for k in range(2):
        compare(flows.joined([parts[b][k] for b in sorted(parts)]), whole[k], 2e-5)


def test_what_compiled_loops_compute_needs_no_compiler(monkeypatch):
    """The loops themselves, uncompiled: the same sums as those of the eager passes."""
    monkeypatch.setattr(torch, "compile", lambda loop, **_: loop)
    for size in (5.0, 0.3, 1e-2, 1e-3):
        check_path(flows.DepthMeter(12, 1000, mode="compiled"), path(size, torch.float32), 1e-4)


@pytest.mark.parametrize("vocabulary", [2, 3, 17])
@pytest.mark.parametrize("mode", ["eager", "loops"])
def test_small_vocabularies(vocabulary, mode, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda loop, **_: loop)
    z = [4 * noise(k, 30, vocabulary).float() for k in range(3)]
    kind = "compiled" if mode == "loops" else "eager"
    check_path(flows.DepthMeter(30, vocabulary, mode=kind), z, 1e-4)


@pytest.mark.parametrize("passes", ["eager", "loops"])
def test_a_step_that_stands_still_is_exactly_zero(passes, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda loop, **_: loop)
    kind = "compiled" if passes == "loops" else "eager"
    instrument, z = flows.DepthMeter(12, 1000, mode=kind), states().float()
    instrument.start(EVERY, z)
    _, step = instrument.advance(EVERY, z)
    for name, value in vars(step).items():
        assert (value == 0).all(), name


@pytest.mark.parametrize("kind", ["eager", "compiled"])
def test_frobenius_norm_holds_where_squares_underflow(kind, monkeypatch):
    """Tail masses of e^{−50} and e^{−75}: their squares are zero in float32."""
    monkeypatch.setattr(torch, "compile", lambda loop, **_: loop)
    z = torch.zeros(2, 5)
    z[:, 0] = torch.tensor([50.0, 75.0])
    found = flows.DepthMeter(2, 5, mode=kind).start(EVERY, z).mobility_frobenius
    assert_close(found, flows.state_statistics(z).mobility_frobenius, rtol=1e-5, atol=0)


def test_divergence_is_finite_where_probabilities_underflow():
    z, y = torch.tensor([[0.0, -200.0]]), torch.tensor([[-200.0, 0.0]])
    instrument = flows.DepthMeter(1, 2)
    instrument.start(EVERY, z)
    _, step = instrument.advance(EVERY, y)
    assert_close(step.kl_divergence, torch.tensor([200.0]).double())
    assert_close(step.total_variation, torch.tensor([1.0]).double())


def test_step_terms_are_those_of_the_divergence():
    p, q = torch.softmax(noise(1, 4, 50), -1), torch.softmax(noise(2, 4, 50), -1)
    terms, gap = eager.step_terms(q, p, (q / p).log())
    assert_close(terms, q * (q / p).log() - q + p, rtol=1e-10, atol=1e-14)
    assert_close(gap, q - p, rtol=1e-10, atol=1e-14)
    assert (terms >= 0).all()


@pytest.mark.parametrize("eta", [0.0, 1e-6, -1e-6])
def test_balanced_variation_is_free_of_a_common_error(eta):
    """Gaps of q e^η against p: the plain half distance is off by up to η/2, this one by η²."""
    p, q = torch.softmax(noise(1, 4, 50), -1), torch.softmax(noise(2, 4, 50), -1)
    found = eager.balanced_variation(*eager.variation_sums(q - p - eta * p, p))
    assert_close(found, 0.5 * (q - p).abs().sum(-1), rtol=1e-10, atol=0)


def test_chunks_may_come_in_any_order_and_size():
    z = path(0.5, torch.float32)
    whole, parts = flows.DepthMeter(12, 1000), flows.DepthMeter(12, 1000)
    whole.start(EVERY, z[0])
    for rows in (slice(7, 12), slice(0, 1), slice(1, 7)):
        parts.start(rows, z[0][rows])
    for logits in z[1:]:
        expected = whole.advance(EVERY, logits)
        chunks = [slice(0, 4), slice(4, 5), slice(5, 12)]
        found = {r.start: parts.advance(r, logits[r]) for r in reversed(chunks)}
        for k in range(2):
            compare(flows.joined([found[b][k] for b in sorted(found)]), expected[k], 1e-6)


def test_blocks_are_walked_in_order(monkeypatch):
    monkeypatch.setattr(engines, "block_rows", lambda _: 5)
    check_path(flows.DepthMeter(12, 1000), path(0.5, torch.float32), 1e-4)


@pytest.mark.usefixtures("_two_threads")
def test_a_meter_made_in_inference_mode_works_outside(monkeypatch):
    monkeypatch.setattr(engines, "block_rows", lambda _: 5)
    z = path(0.5, torch.float32)
    with torch.inference_mode():
        instrument = flows.DepthMeter(12, 1000)
        instrument.start(EVERY, z[0].clone())
    _, step = instrument.advance(EVERY, z[1])
    compare(step, flows.step_statistics(z[0], z[1]), 1e-4)


def test_a_failed_compilation_falls_back_and_says_so(monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("no compiler found\nwith a long traceback")

    monkeypatch.setattr(torch, "compile", broken)
    instrument = flows.DepthMeter(12, 1000, mode="compiled")
    assert instrument.mode == "eager"
    assert instrument.fallback == "compilation failed with RuntimeError: no compiler found"
    check_path(instrument, path(0.5, torch.float32), 1e-4)


@pytest.mark.skipif(sweep_kernels.INTERPRETED, reason="the kernels run in Python here")
@pytest.mark.parametrize(("installed", "reason"), [(False, "not installed"), (True, "found cpu")])
def test_a_meter_without_triton_is_eager_and_says_why(installed, reason, monkeypatch):
    monkeypatch.setattr(swept, "INSTALLED", installed)
    instrument = flows.DepthMeter(12, 1000, mode="triton")
    assert instrument.mode == "eager"
    assert reason in instrument.fallback
    assert "Error" not in instrument.fallback
    check_path(instrument, path(0.5, torch.float32), 1e-4)


def test_kernels_that_do_not_compile_are_replaced_and_that_is_said_once(monkeypatch):
    """A device that asks for Triton, and a tool chain that fails."""

    def broken(*_):
        raise RuntimeError("ptxas not found\nwith a long traceback")

    monkeypatch.setattr(meter, "SweepEngine", broken)
    monkeypatch.setattr(meter, "preferred", lambda logits: "triton")
    monkeypatch.setattr(meter, "_said", set())
    with pytest.warns(MeasureWarning, match="slower: compilation failed with RuntimeError: ptxas"):
        instrument = flows.DepthMeter(12, 1000)
    assert instrument.mode == "eager"
    check_path(instrument, path(0.5, torch.float32), 1e-4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flows.DepthMeter(12, 1000)


def test_an_eager_meter_compiles_nothing(monkeypatch):
    monkeypatch.setattr(engines, "FusedPasses", None)
    instrument = flows.DepthMeter(3, 5)
    assert (instrument.mode, instrument.fallback) == ("eager", None)


def test_advance_before_start_is_refused():
    instrument = flows.DepthMeter(4, 3)
    instrument.start(slice(0, 2), torch.zeros(2, 3))
    with pytest.raises(InvalidInputError, match="row 2 has none"):
        instrument.advance(EVERY, torch.zeros(4, 3))


@pytest.mark.parametrize(("bad", "word"), [(torch.nan, "nan"), (torch.inf, "inf")])
@pytest.mark.parametrize("sign", [1, -1])
def test_logits_that_are_not_finite_are_refused_and_their_rows_forgotten(bad, word, sign):
    instrument, z = flows.DepthMeter(3, 4), torch.zeros(3, 4)
    instrument.start(EVERY, z)
    z[1, 2] = sign * bad
    with pytest.raises(InvalidInputError, match=rf"finite; found -?{word} at \(1, 2\)"):
        instrument.advance(EVERY, z)
    with pytest.raises(InvalidInputError, match="row 0 has none"):
        instrument.advance(EVERY, torch.zeros(3, 4))


def test_logits_whose_sum_overflows_are_refused():
    with pytest.raises(InvalidInputError, match="sum to be finite"):
        flows.DepthMeter(1, 4).start(EVERY, torch.full((1, 4), 3e38))


@pytest.mark.parametrize(
    ("rows", "logits", "sentence"),
    [
        (slice(0, 2), torch.zeros(3, 4), r"shape \(2, 4\)"),
        (slice(0, 3), torch.zeros(3, 5), r"shape \(3, 4\)"),
        (slice(0, 4), torch.zeros(4, 4), "3 rows"),
        (slice(2, 2), torch.zeros(0, 4), "not empty"),
        (slice(0, 3, 2), torch.zeros(2, 4), "without stride"),
        (slice(0, 3), torch.zeros(3, 4).double(), "fit into torch.float32; found torch.float64"),
        (slice(0, 3), torch.zeros(3, 4).long(), "found torch.int64"),
    ],
)
def test_logits_that_do_not_belong_to_the_rows_are_refused(rows, logits, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        flows.DepthMeter(3, 4).start(rows, logits)


def test_narrower_logits_fit():
    state = flows.DepthMeter(2, 4).start(EVERY, torch.zeros(2, 4, dtype=torch.bfloat16))
    assert_close(state.tail_mass, torch.full((2,), 0.75).double())


@pytest.mark.parametrize(
    ("rows", "vocabulary", "options", "sentence"),
    [
        (0, 5, {}, "at least one row"),
        (5, 1, {}, "two outcomes"),
        (5, 5, {"dtype": torch.int64}, "floating-point"),
        (5, 5, {"mode": "fast"}, "found 'fast'"),
    ],
)
def test_meters_that_cannot_be_made_get_a_sentence(rows, vocabulary, options, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        flows.DepthMeter(rows, vocabulary, **options)


@pytest.fixture
def _two_threads():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("_two_threads")
def test_workers_change_no_number_and_no_setting(monkeypatch):
    monkeypatch.setattr(engines, "block_rows", lambda _: 2)
    check_path(flows.DepthMeter(12, 1000), path(0.5, torch.float32), 1e-4)
    assert torch.get_num_threads() == 2
    inherited = []
    thread = Thread(target=lambda: inherited.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert inherited == [2]


@pytest.mark.usefixtures("_two_threads")
def test_a_refusal_reaches_the_caller_through_the_workers(monkeypatch):
    monkeypatch.setattr(engines, "block_rows", lambda _: 2)
    z = states().float()
    z[9, 3] = torch.nan
    with pytest.raises(InvalidInputError, match=r"logits must be finite; found nan at \(9, 3\)"):
        flows.DepthMeter(12, 1000).start(EVERY, z)
    assert torch.get_num_threads() == 2


def test_logits_are_held_as_long_as_nothing_is_written_over_them():
    """The state before the newest only where the newest was written into the room."""
    followed, every, rows = flows.DepthMeter(3, 4), slice(None), torch.tensor([2, 0])
    z = torch.arange(5.0)[:, None, None] + torch.rand(5, 3, 4)
    assert followed.held(rows) is None
    followed.record(every, z[0])
    assert torch.equal(followed.held(rows), z[0][rows])
    assert followed.held(rows, before=True) is None
    for state in (1, 2):
        followed.record(every, followed.room(every).copy_(z[state]))
        assert torch.equal(followed.held(rows), z[state][rows])
        assert torch.equal(followed.held(rows, before=True), z[state - 1][rows])
    followed.record(every, z[3])  # written over the state before
    assert torch.equal(followed.held(rows), z[3][rows])
    assert followed.held(rows, before=True) is None
    followed.recorded()
    followed.record(every, followed.room(every).copy_(z[4]))  # the first state of other rows
    assert torch.equal(followed.held(rows), z[4][rows])
    assert followed.held(rows, before=True) is None
