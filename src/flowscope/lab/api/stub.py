"""Types of ``import flowscope``: the stub that editors and mypy read.

The functions of the instruments are made when they are first asked for, so that no editor can see
their settings. ``python -m flowscope.lab.api.stub`` writes them down in ``flowscope/__init__.pyi``.
"""

import ast
import builtins
import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from flowscope.lab.api.exports import HOMES, PACKAGES, exported_names
from flowscope.lab.api.faces import function_of, result_name
from flowscope.lab.instrument import Instrument
from flowscope.lab.registry import instruments

__all__ = ["stub_text", "write_stub"]

_FILE = Path(__file__).parents[2] / "__init__.pyi"
_WIDTH = 100
_HEAD = "# Written by `python -m flowscope.lab.api.stub`; change the declarations of instruments."
_TYPES = {
    "Any": "typing",
    "Callable": "collections.abc",
    "Literal": "typing",
    "Iterable": "collections.abc",
    "Mapping": "collections.abc",
    "Path": "pathlib",
    "Progress": "flowscope.lab.running.progress",
    "Sequence": "collections.abc",
    "Tensor": "torch",
    "nn": "torch",
}
_SECTIONS = ("standard library", "third party", "flowscope")
_PARTS = {"pandas": "third party", "torch": "third party", "flowscope": "flowscope"}


def stub_text() -> str:
    """Text of the stub."""
    functions = [function_of(one) for one in instruments()]
    names = {name for function in functions for name in _annotated(function)}
    homes = {**HOMES, **dict.fromkeys(PACKAGES, "flowscope")}
    homes |= {"DataFrame": "pandas", "Tables": "flowscope.lab.result"}
    for one in instruments():
        homes[_imported(one)] = f"{one.home}.{one.result.rpartition('.')[0]}"
    names -= {result_name(one) for one in instruments()}
    homes |= {name: _TYPES[name] for name in names - homes.keys() - set(dir(builtins))}
    exported = [f'    "{name}",' for name in sorted(exported_names(), key=_class_first)]
    return "\n".join(
        [
            _HEAD,
            "",
            *_imports(homes),
            "",
            "__version__: str",
            "__all__ = [",
            *exported,
            "]",
            "",
            *(line for one in instruments() for line in _result_classes(one)),
            *(line for function in functions for line in _definition(function)),
            "",
        ]
    )


def write_stub() -> None:
    """Write the stub beside the package."""
    _FILE.write_text(stub_text(), encoding="utf-8")


def _annotated(function: Callable[..., Any]) -> Iterable[str]:
    """Names that the annotations of a function use."""
    signature = inspect.signature(function)
    texts = [str(parameter.annotation) for parameter in signature.parameters.values()]
    for text in (*texts, str(signature.return_annotation)):
        for node in ast.walk(ast.parse(text, mode="eval")):
            if isinstance(node, ast.Name):
                yield node.id


def _imports(homes: dict[str, str]) -> list[str]:
    """Import statements in the order and form that the formatter gives them."""
    sections: dict[str, list[str]] = {section: [] for section in _SECTIONS}
    for home in sorted(set(homes.values())):
        section = _PARTS.get(home.split(".")[0], _SECTIONS[0])
        names = sorted((name for name in homes if homes[name] == home), key=_class_first)
        line = f"from {home} import {', '.join(names)}"
        if len(line) <= _WIDTH:
            sections[section].append(line)
        else:
            listed = [f"    {name}," for name in names]
            sections[section] += [f"from {home} import (", *listed, ")"]
    filled = [lines for lines in sections.values() if lines]
    return [line for lines in filled for line in (*lines, "")][:-1]


def _imported(instrument: Instrument) -> str:
    """How the stub imports the class of results, which it then declares with its tables."""
    name = result_name(instrument)
    return f"{name} as _{name}"


def _result_classes(instrument: Instrument) -> list[str]:
    """Class of results, and the tables that it has, so that ``result.tables.`` completes."""
    name = result_name(instrument)
    return [
        f"class _{name}Tables(Tables):",
        *(f"    {table}: DataFrame" for table in instrument.tables),
        "",
        f"class {name}(_{name}):",
        "    @property",
        f"    def tables(self) -> _{name}Tables: ...",
        "",
    ]


def _class_first(name: str) -> tuple[bool, str]:
    return (not name[0].isupper(), name)


def _definition(function: Callable[..., Any]) -> list[str]:
    """A function as the formatter lays it out: one parameter a line."""
    signature = inspect.signature(function)
    lines = [f"def {function.__name__}("]
    star = False
    for parameter in signature.parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not star:
            lines.append("    *,")
            star = True
        default = _literal(parameter.default)
        lines.append(f"    {parameter.name}: {parameter.annotation} = {default},")
    return [*lines, f") -> {signature.return_annotation}: ..."]


def _literal(value: Any) -> str:
    if isinstance(value, tuple) and value:
        return f"({', '.join(map(_literal, value))}{',' if len(value) == 1 else ''})"
    return f'"{value}"' if isinstance(value, str) else repr(value)


if __name__ == "__main__":
    write_stub()
