"""Tokenizers of numbered words, with the special tokens that a family adds."""

from typing import Any

WORDS = 40
SPECIAL = ("<pad>", "<s>", "</s>", "[CLS]", "[SEP]", "[MASK]", "<unk>")
TEXTS = [" ".join(f"w{(7 * k + n) % WORDS}" for k in range(20 + n)) for n in range(4)]
"""Texts of 20 to 23 words, each its own."""

TEMPLATE = (
    "{% for message in messages %}<s> {{ message['role'] }} {{ message['content'] }} </s> "
    "{% endfor %}{% if add_generation_prompt %}<s> assistant {% endif %}"
)


def worded(single: str = "$A", *, chat: bool = False, **names: str) -> Any:
    """A tokenizer whose post-processor makes ``single`` of a text ``$A``.

    Parameters
    ----------
    single
        Template, e.g. ``"<s> $A"``.
    chat
        Whether it has a chat template.
    **names
        Special tokens by name, e.g. ``bos_token="<s>"``.
    """
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    words = [*SPECIAL, *(f"w{k}" for k in range(WORDS)), "user", "assistant"]
    vocabulary = {word: number for number, word in enumerate(words)}
    made = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = WhitespaceSplit()
    if single != "$A":
        used = [(name, vocabulary[name]) for name in SPECIAL if name in single.split()]
        made.post_processor = TemplateProcessing(single=single, special_tokens=used)
    names = {"unk_token": "<unk>", "pad_token": "<pad>", **names}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, **names)
    if chat:
        tokenizer.chat_template = TEMPLATE
    return tokenizer


def plain(**options: Any) -> Any:
    """One that has a BOS and adds none."""
    return worded(bos_token="<s>", eos_token="</s>", **options)


def beginning(**options: Any) -> Any:
    """One that puts BOS before a text, as those of Llama."""
    return worded("<s> $A", bos_token="<s>", eos_token="</s>", **options)


def bracketed() -> Any:
    """One of BERT's kind."""
    names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    return worded("[CLS] $A [SEP]", **names)


def ended() -> Any:
    """One of T5's kind."""
    return worded("$A </s>", eos_token="</s>")
