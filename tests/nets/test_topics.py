"""The generator of texts with topics against a reader that sees the tokens alone."""

from collections import Counter

import pytest
import torch

from flowscope.errors import InvalidInputError
from flowscope.nets.topics import NOT, STOP, TOPICS, VOCABULARY, WORDS, topic_texts


def _topic(row: list[int], *, negation: bool = True) -> list[int]:
    """Topics with the most words, those of sentences that begin with NOT left out."""
    counts: Counter[int] = Counter()
    text = " ".join(map(str, row)).split(f" {STOP}")
    for sentence in (part.split() for part in text):
        if sentence and int(sentence[0]) == NOT and negation:
            continue
        counts.update(int(w) // WORDS for w in sentence if int(w) < TOPICS * WORDS)
    most = max(counts.values())
    return [topic for topic, count in counts.items() if count == most]


@pytest.mark.parametrize("tokens", [10, 33, 96])
def test_labels_equal_those_of_an_independent_reader(tokens: int) -> None:
    texts, labels = topic_texts(150, tokens, seed=2)
    assert [_topic(row) for row in texts.tolist()] == [[label] for label in labels.tolist()]
    assert texts.min() >= 0
    assert texts.max() < VOCABULARY


def test_counting_words_without_negation_is_often_wrong() -> None:
    texts, labels = topic_texts(400, 48, seed=0)
    pairs = zip(texts.tolist(), labels.tolist(), strict=True)
    right = [_topic(row, negation=False) == [label] for row, label in pairs]
    assert 0.4 < sum(right) / len(right) < 0.8


def test_seed_decides_the_texts() -> None:
    first, again, other = (topic_texts(20, 24, seed=seed)[0] for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_short_texts_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="tokens ≥ 10; got count 5, tokens 9"):
        topic_texts(5, 9, seed=0)
