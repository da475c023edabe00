"""The stopping rule of a random DiffusionGemma: recorded, replaced, calibrated, restored."""

import threading

import numpy as np
import pytest
import torch
from tests.instruments.decode.folders import random_diffusion_gemma, two_way_llama

from flowscope.errors import InvalidInputError, UnsupportedModelError
from flowscope.evidence.risk import least_units
from flowscope.instruments.decode.canvas import calibrate_stop
from flowscope.levers import calibrated_stop, recorded_stop
from flowscope.records import Unavailable

transformers = pytest.importorskip("transformers")
if not hasattr(transformers, "DiffusionGemmaConfig"):
    pytest.skip("this version of transformers has no DiffusionGemma", allow_module_level=True)

PASSES = 10


@pytest.fixture(scope="module")
def model():
    return random_diffusion_gemma()


def prompts(count):
    return np.random.default_rng(0).integers(3, 24, (count, 5)).tolist()


def made(model, ids, seed=3, canvases=1, **options):
    torch.manual_seed(seed)
    return model.generate(
        torch.tensor(ids), max_new_tokens=6 * canvases, max_denoising_steps=PASSES,
        disable_compile=True, **options,
    ).sequences  # fmt: skip


@pytest.mark.parametrize("stability", [0, 1])
def test_a_replay_from_the_record_is_the_rule_itself(model, stability):
    """The rule is run at a level; the record of the run without it gives the same canvas."""
    ids = prompts(3)
    with recorded_stop(model) as record:
        whole = made(model, ids)
    assert record.passes == PASSES
    assert torch.equal(whole[:, 5:], record.canvas[-1])
    levels = np.quantile(torch.stack(record.entropy).numpy(), [0.1, 0.5, 0.9])
    early = 0
    for level in levels.tolist():
        at = record.stops(level, stability)
        with calibrated_stop(model, level, stability=stability) as run:
            stopped = made(model, ids)
        assert torch.equal(stopped[:, 5:], record.canvases(at))
        assert run.passes == int(at.max())
        early += int((at < PASSES).sum())
    assert early or stability  # random laws may never hold still


def test_it_stops_as_the_rule_of_transformers_does_at_the_same_level(model):
    ids = prompts(2)
    with recorded_stop(model) as record:
        made(model, ids)
    level = float(torch.stack(record.entropy).median())
    theirs = made(model, ids, stability_threshold=0, confidence_threshold=level)
    with calibrated_stop(model, level, stability=0):
        ours = made(model, ids)
    assert torch.equal(ours, theirs)


def test_outside_of_the_block_and_in_other_threads_the_model_keeps_its_rule(model):
    ids, seen = prompts(1), []
    plain = made(model, ids)

    def elsewhere():
        seen.append(model._prepare_diffusion_stopping_criteria(model.generation_config))

    def failing():
        with calibrated_stop(model, 9.0, stability=0):
            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        failing()
    assert seen == [None]
    assert "_prepare_diffusion_stopping_criteria" not in vars(model)
    assert torch.equal(made(model, ids), plain)


def test_only_the_first_canvas_is_recorded(model):
    with recorded_stop(model) as record:
        made(model, prompts(1), canvases=2)
    assert record.passes == PASSES


def test_calibration_keeps_its_promise_or_says_how_many_prompts_it_takes(model):
    few = calibrate_stop(model, prompts(4), passes=PASSES)
    assert isinstance(few.threshold, Unavailable)
    assert f"at least {least_units(0.05, 0.05)}" in few.threshold.reason
    levels = (1e-9, 0.5, 3.0, 9.0)
    found = calibrate_stop(
        model, prompts(20), alpha=0.3, passes=PASSES, stability=0, thresholds=levels
    )
    assert found.control.risks[0] == 0  # it never stops
    assert (found.passes[:, 0] == PASSES).all()
    assert (found.passes[:, -1] == 1).all()  # and always at once
    assert (np.diff(found.passes, axis=1) <= 0).all()
    assert found.threshold in levels[:-1]
    assert 0 <= found.saved < 1


def test_bad_calls_get_a_sentence(model):
    llama = two_way_llama()
    with pytest.raises(UnsupportedModelError, match=r"use flowscope\.decode"), recorded_stop(llama):
        pass
    for threshold, stability, words in ((0.0, 1, "positive mean entropy"), (0.1, -1, "0 passes")):
        with (
            pytest.raises(InvalidInputError, match=words),
            calibrated_stop(model, threshold, stability=stability),
        ):
            pass
    for given, levels, words in (
        ([], (0.1,), "no calibration prompt"),
        ([[1, 2], [1, 2]], (0.1,), "equal another"),
        ([[1, 2]], (0.2, 0.1), "must rise"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            calibrate_stop(model, given, thresholds=levels)
    with pytest.raises(InvalidInputError, match="alpha must lie between"):
        calibrate_stop(model, [[1, 2]], alpha=1.0, passes=2)
