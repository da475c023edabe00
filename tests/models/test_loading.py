"""Loading from folders, hub ids, GGUF files and memory; what is refused, and how."""

import json
import shutil

import numpy as np
import pytest
import torch
from tests import networks as models
from torch import nn

from flowscope import Loaded, load
from flowscope.errors import InvalidInputError, LoadError
from flowscope.models.checkpoints import hashes
from flowscope.models.loading import weight_hash
from flowscope.records import Unavailable

KINDS = {
    "gpt2": "causal_lm",
    "llama": "causal_lm",
    "bert": "masked_lm",
    "t5": "seq2seq",
    "vit": "vision",
    "dit": "diffusion",
    "sd3": "diffusion",
}


@pytest.mark.parametrize("name", KINDS)
@torch.no_grad()
def test_a_saved_folder_loads_to_the_same_model(name, folders):
    model, batch = models.READABLE[name]()
    loaded = load(folders(name))
    assert loaded.kind == KINDS[name]
    assert not loaded.model.training
    expected, found = (models.first_tensor(m(**batch)) for m in (model, loaded.model))
    assert torch.equal(expected, found)
    assert loaded.weight_hash == weight_hash(model)


def test_a_loaded_model_is_taken_as_it_is(tokenizer):
    model, _ = models.llama()
    loaded = load(model, tokenizer=tokenizer)
    assert isinstance(loaded, Loaded)
    assert loaded.model is model
    assert loaded.tokenizer is tokenizer
    assert isinstance(loaded.processor, Unavailable)
    with pytest.raises(AttributeError):
        loaded.kind = "torch"


def test_a_loaded_model_is_not_moved():
    with pytest.raises(InvalidInputError, match="loaded already and is not moved"):
        load(nn.Linear(2, 2), dtype=torch.float16)


def test_dtype_is_as_the_user_says(folders):
    assert load(folders("llama")).model.dtype == torch.float32
    assert load(folders("llama"), dtype=torch.bfloat16).model.dtype == torch.bfloat16
    assert load(folders("dit"), dtype=torch.float16).model.dtype == torch.float16


def test_a_pipeline_gives_its_denoiser(folders, tmp_path):
    model, _ = models.dit()
    pipeline = type("Pipeline", (), {"transformer": model})()
    assert load(pipeline).model is model
    shutil.copytree(folders("dit"), tmp_path / "transformer")
    index = {"_class_name": "DiTPipeline", "transformer": ["diffusers", "DiTTransformer2DModel"]}
    (tmp_path / "model_index.json").write_text(json.dumps(index))
    loaded = load(tmp_path)
    assert loaded.kind == "diffusion"
    assert loaded.weight_hash == weight_hash(model)


def test_a_tokenizer_beside_the_weights_is_found(folders, tokenizer, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(folders("llama"), folder)
    assert isinstance(load(folder).tokenizer, Unavailable)
    tokenizer.save_pretrained(folder)
    assert load(folder).tokenizer("it was")["input_ids"] == [1, 2]


def test_a_hub_id_is_found_in_the_local_cache(folders, tmp_path, monkeypatch):
    snapshot = tmp_path / "models--someone--tiny" / "snapshots" / ("0" * 40)
    shutil.copytree(folders("llama"), snapshot)
    reference = tmp_path / "models--someone--tiny" / "refs" / "main"
    reference.parent.mkdir()
    reference.write_text("0" * 40)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    loaded = load("someone/tiny")
    assert loaded.source == "someone/tiny"
    assert loaded.weight_hash == weight_hash(models.llama()[0])


@pytest.fixture
def gguf_file(tmp_path):
    """A two-layer Llama in GGUF, float32, with a tiny vocabulary."""
    import gguf

    path, width, vocabulary = tmp_path / "tiny.gguf", 32, 40
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_context_length(64)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(48)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(8)
    writer.add_vocab_size(vocabulary)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    letters = (
        [chr(ord("a") + i) for i in range(26)] + [f"<{i}>" for i in range(vocabulary - 27)] + ["ab"]
    )
    writer.add_token_list(letters)
    writer.add_token_types([1] * vocabulary)
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(37)
    writer.add_eos_token_id(38)
    rng = np.random.default_rng(0)

    def tensor(name, *shape):
        writer.add_tensor(name, rng.normal(size=shape, scale=0.2).astype(np.float32))

    tensor("token_embd.weight", vocabulary, width)
    tensor("output_norm.weight", width)
    tensor("output.weight", vocabulary, width)
    for block in range(2):
        tensor(f"blk.{block}.attn_norm.weight", width)
        tensor(f"blk.{block}.ffn_norm.weight", width)
        for part, rows in (
            ("attn_q", width),
            ("attn_k", 16),
            ("attn_v", 16),
            ("attn_output", width),
        ):
            tensor(f"blk.{block}.{part}.weight", rows, width)
        tensor(f"blk.{block}.ffn_gate.weight", 48, width)
        tensor(f"blk.{block}.ffn_up.weight", 48, width)
        tensor(f"blk.{block}.ffn_down.weight", width, 48)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_gguf_file_loads(gguf_file):
    import gguf

    loaded = load(gguf_file)
    assert loaded.kind == "causal_lm"
    assert loaded.tokenizer("ab")["input_ids"][-1] == 39
    assert len(loaded.model.model.layers) == 2
    stored = {t.name: t.data for t in gguf.GGUFReader(gguf_file).tensors}
    embedding = loaded.model.model.embed_tokens.weight.detach().numpy()
    np.testing.assert_array_equal(embedding, stored["token_embd.weight"].reshape(embedding.shape))


def test_a_checkpoint_without_a_named_class_is_recognised_by_its_weights(folders, tmp_path):
    for name, kind in (("bert", "masked_lm"), ("gpt2", "causal_lm"), ("t5", "seq2seq")):
        folder = tmp_path / name
        shutil.copytree(folders(name), folder)
        config = json.loads((folder / "config.json").read_text())
        del config["architectures"]
        (folder / "config.json").write_text(json.dumps(config))
        assert load(folder).kind == kind


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("/no/such/folder", "There is no folder /no/such/folder"),
        ("./here.gguf", "There is no file here.gguf"),
        ("nobody/nothing", "is not a folder, and the local cache has no model of that id"),
    ],
)
def test_what_is_not_there_says_so(source, words):
    with pytest.raises(LoadError, match=words):
        load(source)


def test_a_folder_without_a_model_says_what_it_holds(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(LoadError, match=r"no config\.json.*notes\.txt"):
        load(tmp_path)


def test_a_file_that_is_no_model_says_so(tmp_path):
    file = tmp_path / "weights.bin"
    file.write_bytes(b"x")
    with pytest.raises(LoadError, match="is a file"):
        load(file)


def test_a_damaged_configuration_says_so(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": ')
    with pytest.raises(LoadError, match="not valid JSON"):
        load(tmp_path)


def test_damaged_weights_say_so(folders, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(folders("llama"), folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(LoadError, match="could not be loaded"):
        load(folder)


def test_pickled_weights_are_refused_with_what_to_do(folders, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(folders("llama"), folder)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(LoadError, match=r"pickled weights only \(pytorch_model\.bin\).*save_file"):
        load(folder)


def test_missing_weights_are_refused_not_made_up(folders, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "model"
    shutil.copytree(folders("llama"), folder)
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(LoadError, match=r"lacks 1 .*model\.layers\.1\.mlp\.up_proj\.weight"):
        load(folder)


def test_remote_code_does_not_run_unless_told(folders, tmp_path):
    folder, ran = tmp_path / "model", tmp_path / "ran"
    shutil.copytree(folders("llama"), folder)
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = ["MyOwnForCausalLM"]
    config["auto_map"] = {"AutoModelForCausalLM": "mine.MyOwnForCausalLM"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "mine.py").write_text(f"open({str(ran)!r}, 'w').close()\n")
    with pytest.raises(LoadError, match="trust_remote_code=True"):
        load(folder)
    assert not ran.exists()


def test_what_is_nothing_of_the_kind_says_so():
    with pytest.raises(InvalidInputError, match="got int"):
        load(3)


def test_the_weight_hash_sees_one_bit():
    model, _ = models.gpt2()
    before = weight_hash(model)
    assert weight_hash(models.gpt2()[0]) == before
    bits = model.lm_head.weight.data.view(torch.int32)
    bits[0, 0] ^= 1
    assert weight_hash(model) != before
    assert isinstance(weight_hash(model.to("meta")), Unavailable)


@pytest.fixture
def _every_model_is_large(monkeypatch):
    monkeypatch.setattr(hashes, "LARGE", 0)
    monkeypatch.setattr(hashes, "_PIECE", 32)
    monkeypatch.setattr(hashes, "_CACHED", 3)


@pytest.mark.usefixtures("_every_model_is_large")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_hash_of_large_weights_sees_one_bit_and_says_that_it_is_of_sums(dtype):
    model = models.gpt2()[0].to(dtype)
    before = weight_hash(model)
    assert before.startswith("sums:")
    assert weight_hash(models.gpt2()[0].to(dtype)) == before
    flat = model.transformer.wpe.weight.data.view(-1).view(torch.uint8)
    for place in (0, 7, len(flat) // 2, len(flat) - 1):
        for bit in (1, 128):
            flat[place] ^= bit
            assert weight_hash(model) != before
            flat[place] ^= bit
    assert weight_hash(model) == before


@pytest.mark.usefixtures("_every_model_is_large")
def test_sums_of_large_weights_see_order_names_and_shapes():
    plain = nn.Linear(40, 40, bias=False)
    swapped = nn.Linear(40, 40, bias=False)
    swapped.weight.data = plain.weight.data.roll(1, 0).contiguous()
    turned = nn.Linear(20, 80, bias=False)
    turned.weight.data = plain.weight.data.reshape(80, 20).contiguous()
    named = nn.Sequential(plain)
    found = {weight_hash(model) for model in (plain, swapped, turned, named)}
    assert len(found) == 4
    assert {len(text) for text in found} == {69}
