"""The demo: make a small model on the spot, save it as a user would have it, ask the doctor.

Its weights are random; what is shown is what flowscope can measure, not what a model has learned.
"""

import subprocess
import sys
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

FOLDER = Path("out") / "demo-model"


def saved_model() -> Path:
    """A twelve-layer Llama with grouped heads, as a folder."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=4096,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=12,
        num_attention_heads=8,
        num_key_value_heads=4,
    )
    LlamaForCausalLM(config).save_pretrained(FOLDER)
    return FOLDER


def main() -> int:
    """Run ``flowscope doctor`` on it."""
    command = [sys.executable, "-m", "flowscope.cli", "doctor", str(saved_model())]
    print("$ flowscope doctor", FOLDER, flush=True)
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
