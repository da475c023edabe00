"""One loop for several probes: equal to separate passes, resumable, and gone without a trace."""

import numpy as np
import pytest
import torch
from tests import networks as models

from flowscope.errors import InvalidInputError, UnsupportedModelError
from flowscope.probes import (
    AttentionEntropyProbe,
    HiddenProbe,
    Piece,
    PlainBatch,
    Rows,
    TapProbe,
    model_anatomy,
    tap_pass,
)
from flowscope.records import Manifest, Run, Shards

PROMPTS, LENGTH = 4, 7


class States(TapProbe):
    """Squared steps of the hidden state."""

    def __init__(self):
        self.probe, self.batches = HiddenProbe(), []

    def begin(self, batch):
        self.batches.append(batch.prompts.tolist())
        self.probe.begin(Rows.of_mask(batch.prompts, batch.mask))

    def block(self, event):
        self.probe.update(event)

    def end(self):
        self.probe.end()
        arrays = self.probe.arrays()
        self.probe.clear()
        return Piece(arrays=arrays, meta={"batches": len(self.batches)})


class Entropies(TapProbe):
    """Entropy of attention, by layer and head."""

    hears = ("inputs",)

    def __init__(self):
        self.batches, self.widths = [], set()

    def open(self, chain, tail):
        self.probe = AttentionEntropyProbe(len(chain))

    def begin(self, batch):
        self.batches.append(batch.prompts.tolist())
        self.probe.begin(batch.prompts, batch.mask)

    def attention(self, call, inputs):
        self.widths.add(inputs.of(call).shape[-1])
        self.probe.update(call)

    def end(self):
        self.probe.end()
        arrays = self.probe.arrays()
        self.probe.clear()
        return Piece(arrays=arrays)


@pytest.fixture(scope="module")
def model():
    return models.llama()[0].eval()


@pytest.fixture
def run(tmp_path):
    return Run.create(tmp_path / "run", Manifest(seeds={"all": 0}))


def batches_of(size=1):
    ids = torch.randint(0, 50, (PROMPTS, LENGTH), generator=torch.Generator().manual_seed(3))
    return [
        PlainBatch(
            inputs={"input_ids": ids[start : start + size]},
            prompts=np.arange(start, start + size),
            mask=torch.ones(size, LENGTH, dtype=torch.bool),
        )
        for start in range(0, PROMPTS, size)
    ]


def joined(pieces):
    names = pieces[0].arrays
    return {name: np.concatenate([piece.arrays[name] for piece in pieces]) for name in names}


def assert_equal(first, second):
    assert first.keys() == second.keys()
    for name, values in first.items():
        np.testing.assert_array_equal(values, second[name])


def passes_of(model):
    """Counts the forward passes of a model; the tap's probing pass is made before."""
    model_anatomy(model, batches_of()[0].inputs)
    passes = []
    handle = model.register_forward_hook(lambda *_: passes.append(1))
    return passes, handle


def hooks_of(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def test_one_pass_for_two_probes_is_equal_to_two_passes(model):
    together = tap_pass(model, batches_of(), {"states": States(), "entropies": Entropies()})
    for name, probe in {"states": States(), "entropies": Entropies()}.items():
        alone = tap_pass(model, batches_of(), {name: probe})[name]
        assert len(alone) == PROMPTS
        assert_equal(joined(together[name]), joined(alone))


def test_two_probes_share_each_forward_pass(model):
    passes, handle = passes_of(model)
    try:
        tap_pass(model, batches_of(), {"states": States(), "entropies": Entropies()})
    finally:
        handle.remove()
    assert len(passes) == PROMPTS


@pytest.mark.parametrize("name", ["states", "entropies"])
def test_pieces_of_small_batches_merge_to_one_whole_batch(model, name):
    probes = {"states": States, "entropies": Entropies}
    small, whole = (
        joined(tap_pass(model, batches_of(size), {name: probes[name]()})[name])
        for size in (1, PROMPTS)
    )
    assert small.keys() == whole.keys()
    for key, values in whole.items():
        np.testing.assert_allclose(small[key], values, rtol=1e-4, atol=1e-6)


def test_probe_hears_the_main_stream_of_the_chain_alone():
    model, inputs = models.sd3()
    seen = []

    class Sites(TapProbe):
        def block(self, event):
            seen.append(event.site)

    tap_pass(model, [PlainBatch(inputs=inputs)], {"sites": Sites()})
    chain = model_anatomy(model, inputs).depth
    assert len(chain.streams) == 2
    assert [site.index for site in seen] == list(range(len(chain)))
    assert {site.stream for site in seen} == {chain.streams[0]}


def test_inputs_of_attention_are_those_of_the_model(model):
    probe = Entropies()
    tap_pass(model, batches_of(), {"entropies": probe})
    assert probe.widths == {model.config.hidden_size}


def test_resumed_pass_runs_only_missing_and_damaged_batches(model, run):
    shards = {"states": Shards(run=run, fingerprint="0" * 16)}
    expected = tap_pass(model, batches_of(), {"states": States()}, shards=shards)["states"]
    first, second, *_ = sorted((run.folder / "shards").iterdir())
    first.unlink()
    content = second.read_bytes()
    second.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    passes, handle = passes_of(model)
    probe, advanced = States(), []
    try:
        again = tap_pass(
            model, batches_of(), {"states": probe}, shards=shards, advance=advanced.append
        )["states"]
    finally:
        handle.remove()
    assert probe.batches == [[0], [1]]
    assert (len(passes), advanced) == (2, [1] * PROMPTS)
    assert_equal(joined(again), joined(expected))
    assert second.read_bytes()[-1:] == content[-1:]


def test_killed_pass_resumes_where_it_was(model, run):
    shards = {"states": Shards(run=run, fingerprint="0" * 16)}

    def stop(prompts, done=[]):  # noqa: B006 - counts over the calls
        done.append(prompts)
        if len(done) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tap_pass(model, batches_of(), {"states": States()}, shards=shards, advance=stop)
    probe = States()
    resumed = tap_pass(model, batches_of(), {"states": probe}, shards=shards)["states"]
    whole = tap_pass(model, batches_of(), {"states": States()})["states"]
    assert probe.batches == [[2], [3]]
    assert_equal(joined(resumed), joined(whole))


@pytest.mark.parametrize(("stored", "fresh"), [(States, Entropies), (Entropies, States)])
def test_probe_in_memory_is_run_again_without_the_probe_that_has_shards(model, run, stored, fresh):
    shards = {"stored": Shards(run=run, fingerprint="0" * 16)}
    tap_pass(model, batches_of(), {"stored": stored()}, shards=shards)
    probes = {"stored": stored(), "fresh": fresh()}
    pieces = tap_pass(model, batches_of(), probes, shards=shards)
    assert probes["stored"].batches == []
    assert probes["fresh"].batches == [[0], [1], [2], [3]]
    alone = tap_pass(model, batches_of(), {"fresh": fresh()})["fresh"]
    assert_equal(joined(pieces["fresh"]), joined(alone))


@pytest.mark.parametrize("place", ["open", "begin", "attention", "block", "end"])
def test_probe_that_raises_leaves_the_model_untouched(model, run, place):
    def fail(*_):
        raise RuntimeError(place)

    probe = type("Broken", (TapProbe,), {"hears": ("inputs", "blocks"), place: fail})()
    inputs = batches_of()[0].inputs
    before, hooks = model(**inputs).logits, hooks_of(model)
    backend = model.config._attn_implementation
    with pytest.raises(RuntimeError, match=place):
        tap_pass(
            model,
            batches_of(),
            {"states": States(), "broken": probe},
            shards={"states": Shards(run=run, fingerprint="0" * 16)},
        )
    assert hooks_of(model) == hooks
    assert model.config._attn_implementation == backend
    assert torch.equal(model(**inputs).logits, before)
    assert run.shards() == ()


def test_returned_tensor_replaces_the_output_of_attention(model):
    class Silence(TapProbe):
        hears = ("attention",)

        def attention(self, call, inputs):
            return torch.zeros_like(call.output())

    class Outputs(TapProbe):
        def block(self, event):
            found.append(event.writes[0].tensor)

    found = []
    tap_pass(model, batches_of()[:1], {"silence": Silence(), "outputs": Outputs()})
    assert all(float(write.abs().max()) == 0 for write in found)
    assert found


def test_model_without_a_chain_of_blocks_is_refused():
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(
        sample_size=8,
        block_out_channels=(8, 16),
        layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=16,
        attention_head_dim=4,
        norm_num_groups=4,
        transformer_layers_per_block=2,
    ).eval()
    inputs = {
        "sample": torch.randn(1, 4, 8, 8),
        "timestep": torch.tensor(3),
        "encoder_hidden_states": torch.randn(1, 5, 16),
    }

    class Heads(TapProbe):
        purpose = "heads to read"

    with pytest.raises(UnsupportedModelError, match=r"no heads to read: .*U-Net"):
        tap_pass(model, [PlainBatch(inputs=inputs)], {"heads": Heads()})
    assert hooks_of(model) == 0


def test_two_probes_may_not_write_the_same_shards(model, run):
    store = Shards(run=run, fingerprint="0" * 16)
    probes = {"a": States(), "b": States()}
    with pytest.raises(InvalidInputError, match="prefix"):
        tap_pass(model, batches_of(), probes, shards=dict.fromkeys(probes, store))
    probes["b"].prefix = "b-"
    tap_pass(model, batches_of(), probes, shards=dict.fromkeys(probes, store))
    assert [key.name for key in run.shards()][::PROMPTS] == ["00000", "b-00000"]


def test_probe_without_a_prefix_writes_no_shards(model, run):
    shards = {"states": Shards(run=run, fingerprint="0" * 16)}
    probe = States()
    probe.prefix = None
    tap_pass(model, batches_of(), {"states": probe}, shards=shards)
    tap_pass(model, batches_of(), {"states": probe}, shards=shards)
    assert probe.batches == 2 * [[0], [1], [2], [3]]
    assert run.shards() == ()


def test_shards_of_an_unknown_probe_are_refused(model, run):
    store = Shards(run=run, fingerprint="0" * 16)
    with pytest.raises(InvalidInputError, match="'state', which is no probe"):
        tap_pass(model, batches_of(), {"states": States()}, shards={"state": store})
