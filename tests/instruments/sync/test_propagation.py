"""The linear response of a live denoiser: gains by coupling, assumptions, commitment, resuming."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from diffusers import DDIMScheduler
from numpy.testing import assert_allclose
from scipy.special import ndtri
from tests import networks as models

import flowscope.instruments.sync.propagation.response as stage
from flowscope.instruments.sync.config import SyncConfig
from flowscope.instruments.sync.internal_gap.mode_reading import ModeReading
from flowscope.instruments.sync.pair_sampling import pair_sampler
from flowscope.instruments.sync.propagation.response import (
    Propagation,
    finite_response,
    odd_response,
    propagation_steps,
)
from flowscope.instruments.sync.propagation.tables import (
    StepResponse,
    _turn,
    assumption_table,
    gain_table,
    mode_commitment_table,
    speciation_of_mode,
)
from flowscope.models.diffusion.denoiser import denoiser_of
from flowscope.models.loading import load
from flowscope.nets import bundled_path
from flowscope.probes import DifferenceProbe
from flowscope.probes.block_callable import live_block
from flowscope.records import Manifest, Run, Shards, Unavailable
from flowscope.replica import (
    Propagator,
    ReplicaBlock,
    leading_eigenvalue,
    mixture_moments,
    mixture_step,
    modal_gains,
    modal_product,
    mode_energies,
    stacked_gram,
)
from flowscope.tap import Tap

HASH = "abcdef12"
COUPLINGS = (0.0, 0.4, 1.0)
LAYERS, BAND = 3, 2
CONFIG = SyncConfig(
    pairs=6,
    steps=8,
    couplings=COUPLINGS[1:],
    band=BAND,
    kept=8,
    propagation_steps=3,
    propagation_states=2,
    labels=(4,),
    mode_sigma=0.3,
)


def dit(dtype=torch.float64):
    """A small transformer with every gate open, and a schedule."""
    model, _ = models.dit()
    loaded = load(model.to(dtype))
    return denoiser_of(loaded.model, loaded, scheduler=DDIMScheduler(clip_sample=False))


def read(denoiser, run, config=CONFIG):
    modes = ModeReading(denoiser, config, shards_in(run), lambda more: None)
    return {g: modes.read(g, []) for g in (0.0, *config.couplings)}


def shards_in(run):
    return Shards(run=run, fingerprint=HASH)


def created(folder):
    return Run.create(folder, Manifest(seeds={"all": 0}))


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Denoiser, run, readings, the stage, its tables and the blocks it told of."""
    torch.manual_seed(0)
    denoiser, run = dit(), created(tmp_path_factory.mktemp("propagation") / "run")
    readings, done = read(denoiser, run), []
    made = Propagation(denoiser, CONFIG, readings, shards_in(run), done.append)
    return denoiser, run, readings, made, made.tables(), done


def symmetric(denoiser, step):
    """Model inputs at a step, from the middles of the first two pairs, by another route."""
    sampler, noise = pair_sampler(denoiser, CONFIG, 4, eta=0.0, rows=slice(0, 2))
    x = noise.initial(0.0)
    for _, reached in sampler.walk(x, noise, last=step):
        x = reached
    times = torch.full((2,), sampler.clock.times[step])
    labels = torch.full((2,), 4)
    return {"hidden_states": x[:2].double(), "timestep": times, "class_labels": labels}


def first_difference(denoiser, layer):
    """V₀ of what enters a block, by hooks, in float64: modes by a plain decomposition."""
    sampler, noise = pair_sampler(denoiser, CONFIG, 4, eta=0.0)
    seen = []
    block = denoiser.loaded.model.transformer_blocks[layer]
    hook = block.register_forward_pre_hook(lambda module, args: seen.append(args[0].clone()))
    with torch.no_grad():
        x = noise.initial(CONFIG.mode_sigma)
        denoiser.noise(x, sampler.clock.times[0], torch.full((len(x),), 4))
    hook.remove()
    A, B = seen[0].chunk(2)
    modes = torch.linalg.svd(((A - B) / 2**0.5).flatten(1), full_matrices=False).Vh
    return torch.cat([modes[:BAND], modes[-BAND:]]).reshape(2 * BAND, *A.shape[1:])


def test_every_block_step_coupling_and_band_has_a_row(measured):
    made, tables, done = measured[3:]
    table = tables["propagation"]
    assert made.steps == propagation_steps(CONFIG) == [0, 4, 7]
    assert len(table) == 3 * LAYERS * 3 * 2
    assert not table.duplicated(["g", "layer", "step", "band"]).any()
    assert set(table["n"]) == {BAND * 2}
    assert sum(done) == made.work() == 3 * LAYERS
    assert_allclose(table["gain"], table[["direct", "routing", "query", "key"]].sum(axis=1))
    assert (table["gain_low"] <= table["gain"]).all()
    assert (table["gain"] <= table["gain_high"]).all()


@pytest.mark.parametrize("g", COUPLINGS)
@pytest.mark.parametrize("layer", [0, 2])
def test_rows_are_the_modal_gains_at_that_coupling(measured, layer, g):
    """Derivatives are taken without coupling only; here they are taken with it."""
    denoiser, tables = measured[0], measured[4]
    live = live_block(denoiser.loaded.model, symmetric(denoiser, 4), layer)
    gains = modal_gains(Propagator(live.block, live.H0), first_difference(denoiser, layer), g)
    table = tables["propagation"].query("g == @g and layer == @layer + 1 and step == 4")
    for band, modes in (("lead", slice(None, BAND)), ("trail", slice(-BAND, None))):
        row = table[table["band"] == band].iloc[0]
        for channel in ("direct", "routing", "query", "key"):
            expected = float(getattr(gains, channel)[modes].mean())
            assert row[channel] == pytest.approx(expected, rel=1e-5, abs=1e-8)
        by_state = gains.total[modes].mean(0)
        assert row["gain_low"] == pytest.approx(float(by_state.min()), rel=1e-6)
        assert row["gain_high"] == pytest.approx(float(by_state.max()), rel=1e-6)


def test_the_eigenvalue_is_that_of_the_first_state_at_the_middle_step(measured):
    denoiser, tables = measured[0], measured[4]
    table = tables["propagation"]
    told = table[table["eigenvalue"].notna()]
    assert set(told["g"]) == {0.0}
    assert set(told["step"]) == {4}
    one = {name: x[:1] for name, x in symmetric(denoiser, 4).items()}
    live = live_block(denoiser.loaded.model, one, 1)
    expected = leading_eigenvalue(Propagator(live.block, live.H0), 0.0).value.real
    rows = told[told["layer"] == 2]
    assert len(rows) == 2
    assert_allclose(rows["eigenvalue"], expected, atol=2e-2)
    assert (rows["residual"] <= 1e-2 * np.maximum(1, rows["eigenvalue"])).all()


def test_the_product_of_gains_is_that_of_the_whole_depth(measured):
    denoiser, tables = measured[0], measured[4]
    logs = []
    for step in (0, 4, 7):
        inputs = symmetric(denoiser, step)
        lives = [live_block(denoiser.loaded.model, inputs, layer) for layer in range(LAYERS)]
        depth = [Propagator(live.block, live.H0) for live in lives]
        found = modal_product(depth, first_difference(denoiser, 0), 0.0)
        logs.append(found.log_ratio.abs().numpy().ravel())
    logs = np.concatenate(logs)
    row = tables["assumptions"].set_index("equation").loc["56"]
    assert row["n"] == logs.size == 3 * 2 * BAND * 2
    assert row["median"] == pytest.approx(np.nanmedian(logs), rel=1e-4)
    assert row["share"] == pytest.approx(np.mean(logs <= 0.1))


def test_a_second_call_runs_no_pass(measured):
    denoiser, run, readings, _, tables, _ = measured
    calls = []
    hook = denoiser.loaded.model.register_forward_pre_hook(lambda *given: calls.append(1))
    again = Propagation(denoiser, CONFIG, readings, shards_in(run), calls.append).tables()
    hook.remove()
    assert not calls
    for name, table in tables.items():
        pd.testing.assert_frame_equal(again[name], table)


def test_an_interrupted_reading_takes_up_its_steps(tmp_path):
    """Of three steps one was done: the other two are, and nothing else changes."""
    denoiser, run = dit(), created(tmp_path / "run")
    readings, done = read(denoiser, run), []

    def stop(more):
        done.append(more)
        if len(done) > LAYERS:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Propagation(denoiser, CONFIG, readings, shards_in(run), stop).tables()
    rest = []
    tables = Propagation(denoiser, CONFIG, readings, shards_in(run), rest.append).tables()
    assert sum(rest) == 2 * LAYERS
    assert len(tables["propagation"]) == 3 * LAYERS * 3 * 2


def test_another_class_is_another_reading(measured):
    """The class is no part of the fingerprint of a run, so it must be in the names of shards."""
    denoiser, run, readings, _, tables, _ = measured
    other = CONFIG.model_copy(update={"labels": (2,)})
    found = Propagation(denoiser, other, readings, shards_in(run), lambda more: None).tables()
    assert not np.allclose(found["propagation"]["gain"], tables["propagation"]["gain"], rtol=1e-9)


def planted(channels, products, step=0):
    layers = channels.shape[1]
    none = np.full(layers, math.nan)
    empty = np.full((layers, 8), math.nan)
    return StepResponse(
        step=step,
        near=step,
        channels=channels,
        eigenvalue=none,
        residual=none,
        products=products,
        amplitudes=empty,
        response=empty,
    )


def test_assumptions_are_judged_by_their_rules():
    """Two layers and one state: the first is as 004 wants it, the second is not."""
    direct = np.array([[1.10, 1.11, 1.10, 1.11], [1.1, 0.9, 1.5, 0.8]])
    routing = np.array([[1.0, 0.9, 0.2, 0.1], [0.1, 0.2, 0.5, 0.6]])
    query = np.array([[0.1, -0.1, 0.0, 0.0], [0.1, 0.0, 0.0, 0.0]])
    key = np.array([[0.05, 0.0, 3.0, 3.0], [0.0, 0.0, 0.0, 0.0]])
    channels = np.stack([direct, routing, query, key])[..., None]
    products = np.array([[1.0, 2.0, 1.0, -1.0], [1.05, 1.0, 1.0, 1.0]])[..., None]
    table = assumption_table([planted(channels, products)], 2).set_index("equation")
    assert list(table.index) == ["59", "60", "61", "56"]
    assert table["n"].tolist() == [2, 2, 2, 4]
    assert_allclose(table["share"], [0.5, 0.5, 0.5, 0.5])
    # 59: .15/1 in the first layer, .1/.1 in the second; trailing modes are not asked.
    assert_allclose(table.loc["59", ["least", "largest"]].astype(float), [0.15, 1.0])
    mlp = direct - 1
    spread = mlp.std(1) / np.abs(mlp.mean(1))
    assert_allclose(table.loc["60", ["least", "largest"]].astype(float), np.sort(spread))
    assert_allclose(table.loc["61", ["least", "largest"]].astype(float), [-0.4, 0.8])
    assert_allclose(table.loc["56", ["least", "largest"]].astype(float), [0, math.log(2)])
    assert "1 of 4 differ in sign" in table.loc["56", "quantity"]


def test_a_single_state_has_no_range():
    channels = np.ones((4, 1, 2, 1))
    table = gain_table([planted(channels, np.ones((2, 2, 1)))], (0.0, 1.0), 1)
    assert table["gain_low"].isna().all()
    assert table["gain"].tolist() == [4.0, 4.0, 2.0, 2.0]


def stage_of_energy(midpoint, steps, size=3.0, pairs=4):
    """Gram matrices of differences whose first mode loses its energy around a step."""
    V0 = torch.diag(torch.tensor([4.0, 3.0, 2.0, 1.0], dtype=torch.float64))
    out = []
    for step in steps:
        factor = math.exp(-0.5 * size / (1 + math.exp(-(step - midpoint) / 0.7)))
        scale = torch.tensor([factor, 1.0, 1.0, 1.0], dtype=torch.float64)
        out.append(stacked_gram(V0, V0 * scale).numpy())
    return np.stack(out)


def test_commitment_of_a_mode_is_predicted_by_its_gain_and_measured_in_its_energy():
    """The gain of mode 1 crosses one at step 5, its energy turns at step 6; mode 4 does neither."""
    steps = np.arange(12)
    gram = np.stack([stage_of_energy(6.0, steps)] * 2)
    channels = np.zeros((2, 4, 2, 2, 1))
    channels[:, 0, 1] = [[[1.2], [1.3]], [[0.8], [1.4]]]
    responses = [planted(channels[k], np.ones((2, 2, 1)), 10 * k) for k in range(2)]
    reading = {"gram": gram, "kept": steps}
    ranks = np.array([[1, 4], [1, 4]])
    table = mode_commitment_table(
        responses,
        {0.0: reading, 0.5: reading},
        ranks,
        {0.0: np.ones((2, 2)), 0.5: np.full((2, 2), 0.3)},
    )
    free = table[table["g"] == 0].set_index("mode")
    assert free["layer"].tolist() == [2, 2]
    assert free.loc[1, "predicted"] == pytest.approx(5.0)
    assert free.loc[1, "measured"] == pytest.approx(6.0, abs=1e-3)
    assert free.loc[1, ["status", "because"]].tolist() == ["ok", ""]
    assert math.isnan(free.loc[4, "predicted"])
    assert free.loc[4, "status"] == "no transition"
    assert "stays above 1" in free.loc[4, "because"]
    other = table[table["g"] == 0.5]
    assert set(other["status"]) == {"abstained"}
    assert other["measured"].isna().all()
    assert other["because"].str.contains("under this coupling differs").all()


def test_energy_that_turns_outside_the_steps_is_no_transition():
    steps = np.arange(12)
    gram = np.stack([stage_of_energy(15.0, steps, size=30.0)] * 2)
    responses = [planted(np.ones((4, 2, 2, 1)), np.ones((2, 2, 1)), k) for k in (0, 11)]
    ranks, same = np.array([[1, 4], [1, 4]]), np.ones((2, 2))
    table = mode_commitment_table(
        responses, {0.0: {"gram": gram, "kept": steps}}, ranks, {0.0: same}
    )
    row = table.set_index("mode").loc[1]
    assert row["status"] == "no transition"
    assert "outside" in row["because"]


@pytest.mark.parametrize("steps", [12, 16, 26])
@pytest.mark.parametrize("slope", [-2.0, -1e-3, 0.0, 0.3])
@pytest.mark.parametrize("noise", [0.0, 1e-14, 0.1])
def test_a_straight_line_is_no_transition(steps, slope, noise):
    rng, kept = np.random.default_rng(steps), np.arange(steps)
    told = _turn(kept, 5 + slope * kept + noise * slope * rng.standard_normal(steps))
    assert told["status"] == "no transition"
    assert math.isnan(told["measured"])
    assert told["because"] != ""


def test_a_random_walk_is_seldom_a_transition():
    """About 5 % pass; a sigmoid that is its own judge passed in 73 %."""
    rng = np.random.default_rng(0)
    walks = [rng.standard_normal(16 + k % 11).cumsum() for k in range(330)]
    found = [_turn(np.arange(len(walk)), walk)["status"] == "ok" for walk in walks]
    assert 0 < np.mean(found) <= 0.1


@pytest.mark.parametrize("width", [0.1, 0.7, 1.4])
@pytest.mark.parametrize("size", [-3.0, 3.0])
def test_a_clear_step_is_a_transition(width, size):
    rng, kept = np.random.default_rng(0), np.arange(0, 32, 2)
    clean = size / (1 + np.exp(-(kept - 13) / (2 * width)))
    told = _turn(kept, clean + 0.1 * rng.standard_normal(len(kept)))
    assert told["status"] == "ok"
    assert told["measured"] == pytest.approx(13, abs=1.01)


@pytest.mark.parametrize(
    ("curve", "match"),
    [
        (np.tanh((np.arange(20) - 10) / 12), "too slowly"),
        (np.arange(20.0), "straight line"),
        (7 + 1e-12 * (np.arange(20) > 9), "changes by"),
        (np.exp(np.arange(20) / 2), "outside"),
    ],
)
def test_why_an_energy_does_not_turn_is_told(curve, match):
    told = _turn(np.arange(20), curve)
    assert told["status"] == "no transition"
    assert match in told["because"]


def test_modes_of_commitment_are_those_of_the_readings(measured):
    """What enters a block is what the one before it made: the same modes up to sign."""
    tables, readings = measured[4], measured[2]
    table = tables["mode_commitment"]
    assert set(table["layer"]) == {2, 3}
    assert set(table["mode"]) == {1, 2, 5, 6}
    assert_allclose(table.loc[table["g"] == 0, "overlap"], 1.0, atol=1e-6)
    assert (table.loc[table["g"] == 1, "overlap"] < 1 - 1e-4).all()
    for layer in range(2):
        assert mode_energies(readings[0.0]["gram"][layer, 0]).present.all()


def test_modes_of_both_readings_agree_on_the_bundled_model(tmp_path):
    path = bundled_path("image")
    loaded = load(path, dtype=torch.float32)
    denoiser = denoiser_of(path, loaded)
    config = CONFIG.model_copy(update={"pairs": 4, "band": 1})
    run = created(tmp_path / "run")
    made = Propagation(denoiser, config, {}, shards_in(run), lambda more: None)
    basis = made._free_basis()
    sampler, noise = pair_sampler(denoiser, config, 4, eta=0.0)
    left = []  # differences behind every block
    with torch.no_grad(), Tap(loaded.model) as tap:
        probe = DifferenceProbe(layers=16, pairs=4, kept=[0])
        tap.on_block(probe.update)
        tap.on_block(lambda block: left.append(block.hidden_out[:4] - block.hidden_out[4:8]))
        denoiser.noise(noise.initial(0.3), sampler.clock.times[0], sampler.labels)
    for layer in (1, 8, 15):
        gram = probe.arrays()["gram"][layer - 1, 0][:4, :4]
        vectors = torch.from_numpy(np.linalg.eigh(gram)[1][:, ::-1].copy())
        modes = vectors.mT.double() @ left[layer - 1].double().flatten(1)
        expected = torch.nn.functional.normalize(modes, dim=1)[[0, 3]]
        found = basis.modes[layer].double().flatten(1)
        assert_allclose((found * expected).sum(1).abs().numpy(), 1.0, atol=1e-5)
        assert basis.ranks[layer].tolist() == [1, 4]


def test_the_slope_of_the_odd_response_is_the_modal_gain(measured):
    denoiser = measured[0]
    live = live_block(denoiser.loaded.model, symmetric(denoiser, 4), 1)
    propagator = Propagator(live.block, live.H0)
    mode = first_difference(denoiser, 1)[:1]
    slope = odd_response(propagator, mode[0], np.array([1e-3]))[0] / 1e-3
    expected = float(modal_gains(propagator, mode, 0.0).total.mean())
    assert slope == pytest.approx(expected, rel=1e-6)


def test_the_bend_is_that_of_two_replicas():
    """F(H) = H³: replicas H₀ ± a r/√2 at H₀ = 0 leave with the difference a³/2, not a³."""
    cube = ReplicaBlock(lambda H: 3 * (0 * H[..., None, :, :],), lambda H, o: H**3, 1.0)
    propagator = Propagator(cube, torch.zeros(2, 1, 1).double())
    found = odd_response(propagator, torch.ones(1, 1).double(), np.array([1.0, 2.0]))
    assert_allclose(found, [0.5, 4.0])


def test_speciation_of_a_planted_mixture_is_found_and_otherwise_abstains():
    p = np.tile([1.5, 0.5, -1.5, -0.5, 1.2, -0.9], 8)
    moments = mixture_moments(p)
    a = moments.c / moments.m2**0.5 * np.linspace(0.05, 0.3, 8)
    numbers = {"m2": moments.m2, "c": moments.c}
    told = speciation_of_mode(a, mixture_step(a, 0.4, eta=0.7, **numbers), projections=p)
    assert told["status"] == "ok"
    assert told["gamma"] == pytest.approx(0.4, rel=1e-3)
    assert told["eta"] == pytest.approx(0.7, rel=1e-2)
    c, m2 = moments.c, moments.m2
    assert told["kappa"] == pytest.approx(0.4 * m2 / (c * (0.3 * c + 0.4)), rel=1e-2)
    growing = mixture_step(a, 0.4, eta=1 + 2 * 0.4 / c, **numbers)
    assert "amplifies" in speciation_of_mode(a, growing, projections=p)["because"]
    heavy = np.array([0.1, -0.1, 0.1, 5.0, -0.1, 0.1])
    assert "no separation" in speciation_of_mode(a, a, projections=heavy)["because"]
    assert "cubic" in speciation_of_mode(a, a + a**3, projections=p)["because"]


def along_a_mode(gamma, m2, c, eta):
    """A block on numbers whose response to a difference of two replicas is that of eq 36."""

    def half(H, o):
        x = 2**0.5 * H.detach().numpy()
        return torch.from_numpy(mixture_step(x, gamma, m2=m2, c=c, eta=eta)) / 2**0.5

    block = ReplicaBlock(lambda H: 3 * (0 * H[..., None, :, :],), half, 1.0)
    return Propagator(block, torch.zeros(1, 1, 1).double())


@pytest.mark.parametrize("m2", [0.5, 1.0, 2.0, 4.0, 9.0])
def test_gamma_of_the_exact_map_comes_back_from_its_projections(m2):
    """Quantiles of the mixture with c = 1 stand for the projections of many pairs."""
    spread = ndtri((np.arange(2000) + 0.5) / 2000)
    p = np.concatenate([spread - m2**0.5, spread + m2**0.5])
    moments = mixture_moments(p)
    assert moments.m2 == pytest.approx(m2, rel=0.02)
    exact = along_a_mode(0.4, moments.m2, moments.c, 0.7)
    found = finite_response(exact, torch.ones(1, 1).double(), p)
    u = moments.m2**0.5 * found["amplitudes"] / moments.c
    assert_allclose(u.max(), 1 / 3)
    told = speciation_of_mode(found["amplitudes"], found["response"], projections=p)
    assert told["status"] == "ok"
    assert told["gamma"] == pytest.approx(0.4, rel=0.05)
    assert told["eta"] == pytest.approx(0.7, rel=0.05)


def test_amplitudes_stay_among_the_projections(monkeypatch):
    """A weak separation puts c/3m beyond the projections: then their root mean square is last."""
    spread = ndtri((np.arange(2000) + 0.5) / 2000)
    p = spread + 0.0005 * spread**3
    assert 0 < mixture_moments(p).m2 < 0.05
    block, mode = along_a_mode(0.4, 0.05, 1.0, 0.7), torch.ones(1, 1).double()
    assert np.isnan(finite_response(block, mode, p)["amplitudes"]).all()
    monkeypatch.setattr(stage, "no_separation", lambda moments: None)
    amplitudes = finite_response(block, mode, p)["amplitudes"]
    assert_allclose(amplitudes, np.arange(1, 9) / 8 * np.sqrt((p**2).mean()))


@pytest.mark.parametrize("pairs", [16, 64])
def test_gaussian_projections_have_no_speciation(pairs):
    """m² > 0 in two draws of three; the bend of the block is that of a mixture all the same."""
    rng, silent, seen = np.random.default_rng(pairs), 0, 0
    mode = torch.ones(1, 1).double()
    for _ in range(300):
        p = rng.standard_normal(pairs)
        moments = mixture_moments(p, resamples=2)
        block = along_a_mode(0.4, max(moments.m2, 0.1), 1.0, 0.7)
        found = finite_response(block, mode, p)
        told = speciation_of_mode(found["amplitudes"], found["response"], projections=p)
        mute = told["status"] == "abstained" and "no separation beyond noise" in told["because"]
        assert mute == np.isnan(found["response"]).all()
        silent, seen = silent + mute, seen + (moments.m2 > 0)
    assert silent >= 0.93 * 300
    assert seen > 150


def test_a_clear_mixture_has_a_speciation():
    rng, told = np.random.default_rng(0), []
    for _ in range(40):
        p = rng.choice([-3.0, 3.0], 64) + 0.3**0.5 * rng.standard_normal(64)
        moments = mixture_moments(p)
        block = along_a_mode(0.4, moments.m2, moments.c, 0.7)
        found = finite_response(block, torch.ones(1, 1).double(), p)
        told.append(
            speciation_of_mode(found["amplitudes"], found["response"], projections=p)["gamma"]
        )
    assert np.isfinite(told).mean() > 0.9
    assert_allclose(np.array(told)[np.isfinite(told)], 0.4, rtol=0.05)


def test_every_block_but_the_first_has_a_row_of_speciation(measured):
    table = measured[4]["speciation"]
    assert len(table) == 3 * (LAYERS - 1)
    assert set(table["layer"]) == {2, 3}
    assert set(table["status"]) <= {"ok", "abstained"}
    assert (table.loc[table["status"] == "abstained", "because"] != "").all()
    assert (table["m2"] + table["c"] > 0).all()


def test_half_precision_and_bands_too_wide_are_unavailable(tmp_path):
    run = created(tmp_path / "run")
    half = Propagation(dit(torch.bfloat16), CONFIG, {}, shards_in(run), lambda more: None)
    found = half.tables()
    assert isinstance(found, Unavailable)
    assert "bfloat16" in found.reason
    wide = CONFIG.model_copy(update={"band": 4})
    found = Propagation(dit(), wide, {}, shards_in(run), lambda more: None).tables()
    assert isinstance(found, Unavailable)
    assert "6 pairs" in found.reason


def test_a_model_whose_blocks_cannot_be_cut_is_unavailable(measured, tmp_path, monkeypatch):
    from flowscope.errors import UnsupportedModelError

    def refuse(*given):
        raise UnsupportedModelError("blocks.0 passes 2 streams through one attention.")

    monkeypatch.setattr(stage, "live_block", refuse)
    denoiser, _, readings = measured[:3]
    run = created(tmp_path / "run")
    found = Propagation(denoiser, CONFIG, readings, shards_in(run), lambda more: None).tables()
    assert isinstance(found, Unavailable)
    assert "2 streams" in found.reason
