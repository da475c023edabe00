"""Cut the packaged prompts out of the held-out text.

    python -m studies.training.prompts --data FOLDER --out prompts.jsonl

Each is long enough for 128 tokens under the bundled tokenizer and under larger ones, and from a
public-domain or MIT source. Deterministic.
"""

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path

from studies.training.sources import SOURCES
from tokenizers import Tokenizer

__all__ = ["passages", "prompts"]

COUNTS = {"kjv": 22, "shakespeare": 20, "gsm8k": 22}
CHARACTERS, SHORTEST, TOKENS = 900, 800, 128


def passages(texts: list[str]) -> Iterator[str]:
    """Consecutive passages of about `CHARACTERS`, cut between words, from each text in turn."""
    cut = re.compile(rf"\s*(\S.{{0,{CHARACTERS - 1}}})(?=\s|$)", re.DOTALL)
    pieces = [[m.group(1).rstrip() for m in cut.finditer(text)] for text in texts]
    for turn in range(max(map(len, pieces), default=0)):
        yield from (p[turn] for p in pieces if turn < len(p) and len(p[turn]) >= SHORTEST)


def _joined(texts: list[str]) -> list[str]:
    """Short texts put together until each is long enough for one passage."""
    runs = [""]
    for text in texts:
        runs[-1] = f"{runs[-1]}\n\n{text}".strip()
        if len(runs[-1]) >= CHARACTERS:
            runs.append("")
    return runs


def prompts(rows: list[dict[str, str]], tokenizer: Tokenizer) -> list[dict[str, object]]:
    """The prompts of every source in turn, each with its source, licence and length in tokens."""
    found: list[dict[str, object]] = []
    for source, count in COUNTS.items():
        texts = [row["text"] for row in rows if row["source"] == source]
        candidates = passages(_joined(texts) if source == "gsm8k" else texts)
        kept = [text for text in candidates if len(tokenizer.encode(text).ids) >= TOKENS][:count]
        if len(kept) < count:
            raise ValueError(f"{source}: {count} prompts wanted, {len(kept)} found")
        for number, text in enumerate(kept):
            found.append({"id": f"{source}-{number:02d}", "source": SOURCES[source].origin,
                          "licence": SOURCES[source].licence, "text": text})  # fmt: skip
    return found


def main() -> None:
    """Write the prompts and print their sizes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    lines = (options.data / "heldout.jsonl").read_text(encoding="utf-8").split("\n")
    tokenizer = Tokenizer.from_file(str(options.data / "tokenizer.json"))
    found = prompts([json.loads(line) for line in lines if line], tokenizer)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found)
    options.out.write_text(text, encoding="utf-8")
    lengths = sorted(len(tokenizer.encode(str(row["text"])).ids) for row in found)
    print(f"{len(found)} prompts, {len(text.encode()):,} bytes, {lengths[0]}-{lengths[-1]} tokens")


if __name__ == "__main__":
    main()
