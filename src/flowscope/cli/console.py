r"""Text of others on a terminal and in a JSON document: shown, and obeyed by nobody.

Names of models, prompts, tokens and messages of libraries may hold escape sequences, marks that
turn the writing direction, or halves of surrogate pairs, which no encoding takes. What is invisible
stands as ``\uXXXX``.
"""

import json
import unicodedata
from typing import Any

from rich.console import Console
from rich.text import Text

__all__ = ["Terminal", "json_text", "printable"]

_INVISIBLE = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
_STAYS = "\n\t\u200c\u200d"  # the last two: emoji and Indic scripts are misspelt without them


class Terminal(Console):
    """A console on which no text of others moves the cursor, colours or hides anything.

    Text that is printed, and every cell of a table, shows control characters as escapes; line
    breaks and the markup of rich stay.
    """

    def render_str(self, text: str, **options: Any) -> Text:
        """Text of a string, before its width is measured."""
        return super().render_str(printable(text), **options)


def printable(text: str) -> str:
    r"""Text with its line breaks and tabs, in which nothing else is invisible or a command.

    Examples
    --------
    >>> printable("a\n\x1b[31mred")
    'a\n\\u001b[31mred'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in _STAYS else _shown(c) for c in text)


def json_text(value: Any) -> str:
    r"""JSON of a value in characters that one can see.

    Examples
    --------
    >>> json_text({"token": "é\x9b\ud800"})
    '{"token": "é\\u009b\\ud800"}'
    """
    return "".join(map(_shown, json.dumps(value, ensure_ascii=False)))


def _shown(character: str) -> str:
    if unicodedata.category(character) not in _INVISIBLE:
        return character
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[k : k + 4]}" for k in range(0, len(units), 4))
