"""Tokenizer of a model whose vocabulary is a JSON list of pieces with scores (llama2.c)."""

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

__all__ = ["ScoredPieces"]


class ScoredPieces:
    """Merges neighbours, the pair with the best score first, until no pair is a piece.

    Parameters
    ----------
    file
        A JSON list of ``{"piece": text, "score": number}``, in the order of the token numbers.
    """

    def __init__(self, file: Path) -> None:
        pieces = json.loads(file.read_text("utf-8"))
        self._number = {piece["piece"]: number for number, piece in enumerate(pieces)}
        self._piece = [piece["piece"] for piece in pieces]
        self._score = [float(piece["score"]) for piece in pieces]

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        """Token numbers of a text, word by word, as a tokenizer of transformers returns them."""
        words = re.findall(" [^ ]*|^[^ ]+", text)
        return {"input_ids": [number for word in words for number in self._merged(word)]}

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of some tokens."""
        return "".join(self._piece[number] for number in tokens)

    def _merged(self, word: str) -> list[int]:
        ids = [number for letter in word for number in self._letter(letter)]
        while True:
            joined = [self._number.get(self._piece[a] + self._piece[b]) for a, b in pairwise(ids)]
            pairs = [
                (self._score[number], -place, number)
                for place, number in enumerate(joined)
                if number is not None
            ]
            if not pairs:
                return ids
            _, place, number = max(pairs)
            ids[-place : 2 - place] = [number]

    def _letter(self, letter: str) -> list[int]:
        number = self._number.get(letter)
        return [number] if number is not None else [byte + 3 for byte in letter.encode()]
