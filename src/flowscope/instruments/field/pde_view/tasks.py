"""The tasks of the study: sequences of one length, each with a class, to train on and to test."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.instruments.field.pde_view import PdeView
from flowscope.nets import listops, topics
from flowscope.nets.idx import read_idx

__all__ = ["Task", "task"]

_GREYS = 16
_MOST_WORDS = 2000
_UNKNOWN = 0
_WORD = re.compile(r"[a-z]+")
_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}

Examples = tuple[Int[Tensor, "examples N"], Int[Tensor, "examples"]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """Sequences with classes.

    Attributes
    ----------
    name
        Name of the task.
    vocabulary, classes
        Numbers of different tokens and of classes.
    inputs, labels
        What is trained on.
    test_inputs, test_labels
        What is tested and read.
    """

    name: str
    vocabulary: int
    classes: int
    inputs: Int[Tensor, "examples N"]
    labels: Int[Tensor, "examples"]
    test_inputs: Int[Tensor, "tested N"]
    test_labels: Int[Tensor, "tested"]

    @property
    def tokens(self) -> int:
        """Tokens of a sequence."""
        return int(self.inputs.shape[1])

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Vocabulary, tokens and classes, which a network is made with."""
        return self.vocabulary, self.tokens, self.classes

    @cached_property
    def mark(self) -> str:
        """Sha256 of all examples."""
        parts = (self.inputs, self.labels, self.test_inputs, self.test_labels)
        joined = b"".join(part.cpu().contiguous().numpy().tobytes() for part in parts)
        return hashlib.sha256(joined).hexdigest()

    def on(self, device: torch.device) -> Task:
        """The task with its examples on a device."""
        parts = {
            name: getattr(self, name).to(device)
            for name in ("inputs", "labels", "test_inputs", "test_labels")
        }
        return Task(name=self.name, vocabulary=self.vocabulary, classes=self.classes, **parts)


def task(name: str, config: PdeView) -> Task:
    """The task of a name, as large as the settings say; of given data at most that many examples.

    Raises
    ------
    InvalidInputError
        For sequences that are too short, or a file that is not there, too short or not of its kind.
    """
    makers = {"listops": _listops, "topics": _topics, "mnist": _mnist, "texts": _texts}
    return makers[name](config)


def _listops(config: PdeView) -> Task:
    drawn = listops.listops(config.examples + config.tested, config.field.tokens, config.field.seed)
    return _split("listops", listops.VOCABULARY, 10, drawn, config)


def _topics(config: PdeView) -> Task:
    count = config.examples + config.tested
    drawn = topics.topic_texts(count, config.field.tokens, config.field.seed)
    return _split("topics", topics.VOCABULARY, topics.TOPICS, drawn, config)


def _split(name: str, vocabulary: int, classes: int, drawn: Examples, config: PdeView) -> Task:
    """A task of examples of one source: the first are trained on."""
    (inputs, labels), n = drawn, config.examples
    return Task(
        name=name, vocabulary=vocabulary, classes=classes, inputs=inputs[:n], labels=labels[:n],
        test_inputs=inputs[n:], test_labels=labels[n:],
    )  # fmt: skip


def _mnist(config: PdeView) -> Task:
    if config.mnist is None:
        raise InvalidInputError(
            "The task mnist needs the four idx files of MNIST; no folder was given. Set mnist=DIR, "
            "or leave the task out."
        )
    inputs, labels = _images(Path(config.mnist), "train", config.examples, config.side)
    test_inputs, test_labels = _images(Path(config.mnist), "test", config.tested, config.side)
    return Task(
        name="mnist", vocabulary=_GREYS, classes=10, inputs=inputs, labels=labels,
        test_inputs=test_inputs, test_labels=test_labels,
    )  # fmt: skip


def _images(folder: Path, part: str, count: int, side: int) -> Examples:
    """Images as rows of grey values, averaged over squares to the wanted size."""
    paths = [folder / name for name in _FILES[part]]
    found = [path if path.exists() else path.with_name(path.name + ".gz") for path in paths]
    pixels, labels = (read_idx(path) for path in found)
    least = count if part == "test" else 2
    if pixels.ndim != 3 or len(pixels) != len(labels) or len(pixels) < least:
        raise InvalidInputError(
            f"{found[0]} must hold at least {least} images, and as many as there are labels; found "
            f"shape {pixels.shape} and {len(labels)} labels. Set a smaller tested."
        )
    grey = torch.from_numpy(pixels[:count].astype(np.float32))[:, None]
    small = F.adaptive_avg_pool2d(grey, side).flatten(1)
    levels = (small * (_GREYS / 256)).long().clamp(max=_GREYS - 1)
    return levels, torch.from_numpy(labels[:count].astype(np.int64))


def _texts(config: PdeView) -> Task:
    if config.field.text is None:
        raise InvalidInputError(
            "The task texts needs texts with labels; no file was given. Give one with --text, or "
            "leave the task out."
        )
    path = Path(config.field.text)
    rows = list(_labelled(path, config.field.tokens))
    train = [row for row in rows if row[2] != "test"]
    test = [row for row in rows if row[2] == "test"]
    if not test:
        order = np.random.default_rng(config.field.seed).permutation(len(rows))
        rows = [rows[k] for k in order]
        train, test = rows[config.tested :], rows[: config.tested]
    train, test = train[: config.examples], test[: config.tested]
    names = sorted({label for _, label, _ in (*train, *test)})
    if len(train) < 2 or len(test) < config.tested or len(names) < 2:
        raise InvalidInputError(
            f"{path} must hold texts to train on and {config.tested} to test, of at least "
            f"{config.field.tokens} words and of two labels; found {len(train)}, {len(test)} and "
            f"{len(names)} labels. Set a smaller tested or field.tokens."
        )
    counts = Counter(word for words, _, _ in train for word in words)
    numbers = {word: k + 1 for k, (word, _) in enumerate(counts.most_common(_MOST_WORDS))}
    read = [_numbered(part, numbers, names) for part in (train, test)]
    return Task(
        name="texts", vocabulary=len(numbers) + 1, classes=len(names), inputs=read[0][0],
        labels=read[0][1], test_inputs=read[1][0], test_labels=read[1][1],
    )  # fmt: skip


def _numbered(
    rows: list[tuple[list[str], str, str]], numbers: dict[str, int], names: list[str]
) -> Examples:
    words = [[numbers.get(word, _UNKNOWN) for word in row] for row, _, _ in rows]
    return torch.tensor(words), torch.tensor([names.index(label) for _, label, _ in rows])


def _labelled(path: Path, tokens: int) -> Iterator[tuple[list[str], str, str]]:
    """First words, label and part of each text of a file that is long enough."""
    try:
        raw = path.read_bytes()
        content = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"The texts {path} could not be read: {error}.") from error
    for number, line in enumerate(filter(str.strip, content.split("\n")), 1):
        try:
            row = json.loads(line)
            text, label, part = row["text"], str(row["label"]), str(row.get("split", ""))
            words = _WORD.findall(text.lower())[:tokens]
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InvalidInputError(
                f'line {number} of {path} must be a JSON object with "text" and "label" (and '
                f'"split", train or test); found {error!r}.'
            ) from error
        if len(words) == tokens:
            yield words, label, part
