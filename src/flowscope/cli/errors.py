"""How a command ends: its exit code, and errors as one sentence or one JSON document."""

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import typer
from rich.markup import escape

from flowscope.cli.console import Terminal
from flowscope.errors import FlowscopeError, LoadWarning, RecordWarning

__all__ = ["ABSTAINED", "DEBUG", "DONE", "ERROR", "INTERRUPTED", "error_sentences"]

DONE, ERROR, ABSTAINED, INTERRUPTED = 0, 1, 3, 130
DEBUG = "FLOWSCOPE_DEBUG"
"""Environment variable that asks for the traceback of an error; ``--debug`` sets it."""
_LONGEST = 300
_NO_MEMORY = ("can't allocate memory", "out of memory")


@contextmanager
def error_sentences(as_json: bool) -> Iterator[None]:
    """Print an error as one sentence, or one JSON document, and exit with its code.

    With ``as_json`` all that libraries print goes to standard error, so that standard output holds
    the document alone.
    """
    stdout = sys.stdout
    if as_json:
        sys.stdout = sys.stderr
    try:
        with warnings.catch_warnings():
            warnings.showwarning = partial(_show_warning, warnings.showwarning)
            yield
    except KeyboardInterrupt:
        resume = "Interrupted. Finished work is saved; run the same command to resume."
        Terminal(stderr=True).print(resume)
        raise typer.Exit(INTERRUPTED) from None
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except Exception as error:
        if _debugging():
            raise
        sys.stdout = stdout
        sentence = str(error) if isinstance(error, FlowscopeError) else _unexpected(error)
        if as_json:
            print(json.dumps({"error": sentence, "kind": type(error).__name__}))
        else:
            Terminal(stderr=True).print(f"[bold red]error:[/] {escape(sentence)}")
        raise typer.Exit(ERROR) from error
    finally:
        sys.stdout = stdout


def _debugging() -> bool:
    return os.environ.get(DEBUG, "") not in ("", "0")


def _unexpected(error: Exception) -> str:
    """One sentence about an error that flowscope did not foresee."""
    if isinstance(error, MemoryError) or any(words in str(error) for words in _NO_MEMORY):
        return (
            "The run needs more memory than there is. Take fewer or shorter prompts, fewer images "
            "or pairs, or a smaller batch."
        )
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    what = f": {lines[0][:_LONGEST]}" if lines else ""
    return (
        f"an unexpected {type(error).__name__}{what}. Run flowscope --debug with the same command "
        "to see where it comes from. If the input is sound, please report it."
    )


def _show_warning(
    usual: Callable[..., Any], message: Warning | str, category: type[Warning], *more: Any
) -> None:
    """Print what was put right, or left out, as a sentence; other warnings as usual."""
    if issubclass(category, (LoadWarning, RecordWarning)):
        Terminal(stderr=True).print(f"[bold]note:[/] {escape(str(message))}", soft_wrap=True)
    else:
        usual(message, category, *more)
