"""Small model folders that fill sudoku: random weights, the vocabulary of the tasks."""

import json

import torch

from flowscope.nets.sudoku import CHARACTERS, MASK, PAD

__all__ = ["denoiser_folder", "random_diffusion_gemma", "two_way_llama"]


OUTCOMES = len(CHARACTERS)


def two_way_llama(*, causal=False, outcomes=OUTCOMES, seed=0, spread=0.3, layers=2):
    """A Llama of random weights that sees both ways unless it is causal."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=outcomes, hidden_size=32, intermediate_size=48, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
        is_causal=causal, mask_token_id=0, pad_token_id=1, bos_token_id=None, eos_token_id=None,
        initializer_range=spread, tie_word_embeddings=False,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).eval()


def denoiser_folder(folder, **options):
    """Folder of a Llama with one token a character, as the bundled denoiser has it."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    two_way_llama(**options).save_pretrained(folder)
    tokens = {character: place for place, character in enumerate(CHARACTERS)}
    made = Tokenizer(models.WordLevel(tokens, unk_token=PAD))
    made.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    made.decoder = decoders.Fuse()
    made.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "mask_token": MASK, "pad_token": PAD,
        "unk_token": PAD, "clean_up_tokenization_spaces": False,
    }  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def random_diffusion_gemma():
    """A DiffusionGemma of random weights, 24 tokens, canvases of six."""
    import transformers
    from transformers.models.diffusion_gemma import DiffusionGemmaTextConfig

    text = DiffusionGemmaTextConfig(
        vocab_size=24, hidden_size=16, intermediate_size=16, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, head_dim=8, global_head_dim=8, num_experts=2,
        top_k_experts=1, moe_intermediate_size=8, max_position_embeddings=64,
        layer_types=["sliding_attention", "full_attention"], initializer_range=1.0,
    )  # fmt: skip
    vision = transformers.AutoConfig.for_model(
        "gemma4_vision", hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, head_dim=8, position_embedding_size=16,
    )  # fmt: skip
    config = transformers.DiffusionGemmaConfig(
        text_config=text, vision_config=vision, canvas_length=6
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return transformers.DiffusionGemmaForBlockDiffusion(config).eval()
