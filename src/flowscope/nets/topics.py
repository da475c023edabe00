"""Short texts with a topic, from a seeded generator: counting words is not enough to tell it.

A text is a run of sentences of four to eight words. Half of the words of a sentence belong to its
topic, the others are common ones. A sentence that begins with NOT takes its words back: they do
not count. The label is the topic with the most words that count.
"""

import random

import torch
from jaxtyping import Int
from torch import Tensor

from flowscope.errors import InvalidInputError

__all__ = ["COMMON", "NOT", "STOP", "TOPICS", "VOCABULARY", "WORDS", "topic_texts"]

TOPICS = 8
"""Number of topics, which are the labels."""
WORDS = 6
"""Words of each topic: topic k has the tokens from k × WORDS on."""
COMMON = 14
"""Number of common words; they follow those of the topics."""
NOT = TOPICS * WORDS + COMMON
"""Token that begins a sentence whose words do not count."""
STOP = NOT + 1
"""Token that ends a sentence, and fills what is left."""
VOCABULARY = STOP + 1
"""Number of different tokens."""

_LENGTHS = (4, 8)  # words of a sentence
_SHORTEST = _LENGTHS[1] + 2  # one sentence with NOT and STOP
_NEGATED = 0.3
_MAIN = 0.35  # probability that a sentence has the main topic of its text


def topic_texts(
    count: int, tokens: int, seed: int
) -> tuple[Int[Tensor, "count tokens"], Int[Tensor, "count"]]:
    """Texts and their topics.

    Parameters
    ----------
    count, tokens
        Number of texts, and length of each.
    seed
        Seed of the generator; the same seed gives the same texts on every machine.

    Raises
    ------
    InvalidInputError
        For no text, or fewer than 10 tokens.

    Examples
    --------
    >>> texts, labels = topic_texts(3, 32, seed=0)
    >>> texts.shape, bool(((labels >= 0) & (labels < TOPICS)).all())
    (torch.Size([3, 32]), True)
    """
    if count < 1 or tokens < _SHORTEST:
        raise InvalidInputError(
            f"topic texts need count ≥ 1 and tokens ≥ {_SHORTEST}; got count {count}, tokens "
            f"{tokens}."
        )
    draw = random.Random(seed)
    pairs = [_text(tokens, draw) for _ in range(count)]
    return torch.tensor([row for row, _ in pairs]), torch.tensor([label for _, label in pairs])


def _text(tokens: int, draw: random.Random) -> tuple[list[int], int]:
    """One text and its topic; drawn again until one topic has the most words."""
    while True:
        main = draw.randrange(TOPICS)
        row: list[int] = []
        scores = [0] * TOPICS
        while len(row) + _SHORTEST <= tokens:
            topic = main if draw.random() < _MAIN else draw.randrange(TOPICS)
            negated = draw.random() < _NEGATED
            words = draw.randint(*_LENGTHS)
            told = (words + 1) // 2
            row += [NOT] * negated + _sentence(topic, told, words - told, draw) + [STOP]
            scores[topic] += told * (not negated)
        best = max(scores)
        if best and scores.count(best) == 1:
            return row + [STOP] * (tokens - len(row)), scores.index(best)


def _sentence(topic: int, told: int, other: int, draw: random.Random) -> list[int]:
    """Words of a topic and common words, of which the first are the commonest, in random order."""
    words = [topic * WORDS + draw.randrange(WORDS) for _ in range(told)]
    common = [1 / (rank + 1) for rank in range(COMMON)]
    words += [TOPICS * WORDS + rank for rank in draw.choices(range(COMMON), common, k=other)]
    draw.shuffle(words)
    return words
