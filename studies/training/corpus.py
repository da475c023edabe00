"""Build the corpus of the bundled model: documents, held-out split, tokenizer, token shards.

    python -m studies.training.corpus --out FOLDER gsm8k=PATH kjv=PATH ...

Everything is a function of the raw files: the split ranks groups by a hash, nothing is drawn. The
folder then holds ``tokens.npz`` (uint16; one ``train_NAME`` and one ``heldout_NAME`` per source,
each document followed by the end mark), ``tokenizer.json``, ``tokenizer_config.json``,
``heldout.jsonl`` (the held-out text) and ``corpus.json`` (sizes, licences, hashes).
"""

import argparse
import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from studies.training.sources import SOURCES, Document
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

__all__ = ["build", "encoded", "save_tokenizer", "split", "trained_tokenizer"]

END, PAD = "<|endoftext|>", "<|pad|>"
HELD_OUT_SHARE = 0.03
# Words and marks take their leading space along; digits come one by one, so that numbers are read
# in places, not by rote.
PIECES = r"'(?:s|t|re|ve|m|ll|d)| ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def split(
    documents: Sequence[Document], share: float = HELD_OUT_SHARE
) -> tuple[list[str], list[str]]:
    """Training and held-out texts: whole groups, by rank of their hash, up to a share of bytes."""
    ranked = sorted({d.group for d in documents}, key=_digest)
    sizes = dict.fromkeys(ranked, 0)
    for document in documents:
        sizes[document.group] += len(document.text.encode())
    goal, held, taken = share * sum(sizes.values()), set(), 0
    for group in ranked:
        if taken >= goal:
            break
        held.add(group)
        taken += sizes[group]
    train = [d.text for d in documents if d.group not in held]
    return train, [d.text for d in documents if d.group in held]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def trained_tokenizer(texts: Iterable[str], pieces: int = 4096) -> Tokenizer:
    """A byte-level BPE of that many pieces: no normaliser and all 256 bytes, so texts come back."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=pieces,
        special_tokens=[END, PAD],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path, context: int = 256) -> None:
    """Write ``tokenizer.json`` and the ``tokenizer_config.json`` that transformers reads."""
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END,
        "eos_token": END,
        "pad_token": PAD,
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
    }
    _write_json(folder / "tokenizer_config.json", settings)


def encoded(tokenizer: Tokenizer, texts: list[str]) -> np.ndarray:
    """The texts as one row of tokens, each followed by the end mark."""
    end = tokenizer.token_to_id(END)
    rows = [[*row.ids, end] for row in tokenizer.encode_batch(texts, add_special_tokens=False)]
    if tokenizer.get_vocab_size() > np.iinfo(np.uint16).max + 1:
        raise ValueError(f"uint16 holds 65536 pieces; found {tokenizer.get_vocab_size()}")
    return np.concatenate([np.array(row, dtype=np.uint16) for row in rows])


def build(raw: dict[str, Path], out: Path, pieces: int = 4096) -> dict[str, object]:
    """Read the raw files, split, train the tokenizer on the training part, write the folder."""
    out.mkdir(parents=True, exist_ok=True)
    parts = {name: split(list(SOURCES[name].documents(path))) for name, path in raw.items()}
    for name, (train, held) in parts.items():
        if set(train) & set(held):
            raise RuntimeError(f"{name}: a document is on both sides of the split")
    tokenizer = trained_tokenizer((text for train, _ in parts.values() for text in train), pieces)
    save_tokenizer(tokenizer, out)
    shards, table = {}, {}
    for name, sides in parts.items():
        table[name] = {"licence": SOURCES[name].licence, "origin": SOURCES[name].origin}
        table[name]["sha256"] = _raw_digest(raw[name])
        for side, texts in zip(("train", "heldout"), sides, strict=True):
            shards[f"{side}_{name}"] = tokens = encoded(tokenizer, texts)
            size = sum(len(text.encode()) for text in texts)
            table[name][side] = {"documents": len(texts), "bytes": size, "tokens": len(tokens)}
    np.savez(out / "tokens.npz", **shards)
    with (out / "heldout.jsonl").open("w", encoding="utf-8") as file:
        for name, (_, held) in parts.items():
            file.writelines(
                json.dumps({"source": name, "text": text}, ensure_ascii=False) + "\n"
                for text in held
            )
    record = {
        "pieces": tokenizer.get_vocab_size(),
        "tokenizer_sha256": hashlib.sha256((out / "tokenizer.json").read_bytes()).hexdigest(),
        "sources": table,
    }
    _write_json(out / "corpus.json", record)
    return record


def _raw_digest(path: Path) -> str:
    """sha256 of a file, or over the names and contents of the files of a folder."""
    if path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    digest = hashlib.sha256()
    for file in sorted(f for f in path.iterdir() if f.is_file()):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    """Build the corpus from the command line and print its sizes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("raw", nargs="+", metavar="NAME=PATH", help=", ".join(SOURCES))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pieces", type=int, default=4096)
    options = parser.parse_args()
    raw = {name: Path(path) for name, _, path in (item.partition("=") for item in options.raw)}
    unknown = sorted(set(raw) - set(SOURCES))
    if unknown:
        parser.error(f"unknown source {unknown[0]!r}; known are {', '.join(SOURCES)}")
    print(json.dumps(build(raw, options.out, options.pieces), indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
