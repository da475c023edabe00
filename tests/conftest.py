"""Shared settings: few threads, quiet libraries, one hypothesis profile everywhere."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import torch
from hypothesis import settings

settings.register_profile("flowscope", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("flowscope")


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def _quiet_libraries() -> None:
    torch.set_num_threads(1)
    from diffusers.utils import logging as diffusers_logging
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    diffusers_logging.set_verbosity_error()
