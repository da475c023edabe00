r"""Text that others wrote, shown as text.

Tokens, prompts, model names and reasons come from files and are never trusted. There are four
places such text can go, and each has its own language to be silenced:

* HTML: the five special characters become entities.
* JSON inside a ``<script>`` element: ``<``, ``>``, ``&`` and everything beyond ASCII become
  ``\uXXXX``, so neither ``</script>`` nor ``<!--`` nor U+2028 can occur.
* Labels of plotly, which reads a subset of HTML, ``%{…}`` templates and ``$…$`` formulas: the
  characters these begin with become numeric entities, which plotly decodes last of all.
* The eye: line breaks, control characters and marks that turn the writing direction are
  replaced by something one can see.
"""

import base64
import hashlib
import html
import json
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = [
    "from_plotly",
    "hover",
    "html_text",
    "json_island",
    "plotly_text",
    "script_hash",
    "shortened",
    "visible",
]

_NAMED = {"\n": "↵", "\r": "␍", "\t": "⇥"}
_JOINERS = ("\u200c", "\u200d")  # emoji and Indic scripts are misspelt without them
_INVISIBLE = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
_PLOTLY = re.compile(r"[<>&%{}$\"'\\]")
_JSON = re.compile(r"[<>&]")


def visible(value: object) -> str:
    r"""Text of a value in which nothing is invisible or moves what stands beside it.

    Examples
    --------
    >>> visible("a\nb"), visible("safe\u202etxt.exe")
    ('a↵b', 'safe\\u202etxt.exe')
    """
    return "".join(_seen(character) for character in str(value))


def _seen(character: str) -> str:
    if character in _NAMED:
        return _NAMED[character]
    if unicodedata.category(character) in _INVISIBLE and character not in _JOINERS:
        code = ord(character)
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return character


def shortened(value: object, most: int) -> str:
    """Visible text of at most ``most`` characters; an ellipsis says that something was cut."""
    shown = visible(value)
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def html_text(value: object) -> str:
    """Visible text for the content or a quoted attribute of an HTML element.

    Examples
    --------
    >>> html_text('<b title="x">')
    '&lt;b title=&quot;x&quot;&gt;'
    """
    return html.escape(visible(value), quote=True)


def plotly_text(value: object) -> str:
    """Visible text for a label or hover box of plotly, where none of it is markup or template.

    Examples
    --------
    >>> plotly_text("<b>%{x}")
    '&#60;b&#62;&#37;&#123;x&#125;'
    """
    return _PLOTLY.sub(lambda match: f"&#{ord(match[0])};", visible(value))


def from_plotly(text: str) -> str:
    """Text of a label of plotly as it was before :func:`plotly_text`."""
    return html.unescape(text)


def hover(lines: Iterable[object]) -> str:
    """Text of a plotly hover box: one line each, none of them markup."""
    return "<br>".join(plotly_text(line) for line in lines)


def json_island(value: Any) -> str:
    r"""JSON that can stand inside a ``<script>`` element; an undefined float becomes null.

    Examples
    --------
    >>> json_island(["</script>", float("nan")])
    '["\\u003c/script\\u003e",null]'
    """
    text = json.dumps(_strict(value), separators=(",", ":"), allow_nan=False)
    return _JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _strict(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    return value


def script_hash(script: str) -> str:
    """Source expression by which a content security policy admits this very script."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"'sha256-{digest}'"
