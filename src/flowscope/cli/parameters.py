"""Parameters of a command: made from the described fields of its settings.

Every option is None unless it is given, so that a value of a ``--config`` file is overridden by
what was typed and not by a default.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, get_args, get_origin

import typer
from pydantic.fields import FieldInfo
from rich.markup import escape

from flowscope.cli.completion import complete_run, only_completer
from flowscope.cli.errors import DONE
from flowscope.cli.terminal import print_settings
from flowscope.lab.config import Config, default_words, description_of, marks
from flowscope.lab.running.selection import selectable

if TYPE_CHECKING:
    from flowscope.lab.instrument import Instrument

__all__ = [
    "ConfigFile",
    "Json",
    "Open",
    "Overrides",
    "Revision",
    "RunFolder",
    "TokenizerName",
    "Trust",
    "command_help",
    "only_parameter",
    "resolved_settings",
    "setting_parameters",
    "with_parameters",
]

C = TypeVar("C", bound=Config)
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on standard output (default: no).")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="Change one setting; repeatable (default: none)."
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="YAML file of settings (default: none)."),
]
Open = Annotated[
    bool, typer.Option("--open", help="Open report.html in the browser (default: no).")
]
Revision = Annotated[
    str | None, typer.Option(help="Branch, tag or commit of a hub id (default: the main branch).")
]
TokenizerName = Annotated[
    str | None, typer.Option(help="Folder or hub id of a tokenizer (default: that of the model).")
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code",
        help="Whether Python code that comes with the weights may run (default: no).",
    ),
]
RunFolder = Annotated[Path, typer.Argument(help="A run folder.", autocompletion=complete_run)]


def command_help(documented: Any) -> str:
    """Docstring with each paragraph on one line, so that the terminal alone wraps it."""
    paragraphs = inspect.cleandoc(documented.__doc__ or "").split("\n\n")
    return "\n\n".join(escape(" ".join(paragraph.split())) for paragraph in paragraphs)


def setting_parameters(config: type[Config]) -> list[inspect.Parameter]:
    """Parameters for the arguments and options among the settings, and for ``--settings``."""
    fields = config.model_fields.items()
    arguments = [_parameter(name, field) for name, field in fields if marks(field).get("argument")]
    options = [_parameter(name, field) for name, field in fields if marks(field).get("option")]
    return [*arguments, *options, _listing(config)]


def _parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    default = "" if field.is_required() else f" (default: {_typed(field)})"
    help = f"{description_of(field)}{default}."
    kind, metavar = _value_type(field.annotation), _metavar(field)
    dashed = "--" + name.replace("_", "-")
    if marks(field).get("argument"):
        info = typer.Argument(help=escape(help), metavar=metavar, show_default=False)
    elif kind is bool:
        names = f"{dashed}/--no-{dashed[2:]}" if field.default else dashed
        info = typer.Option(names, help=escape(help), show_default=False)
    else:
        info = typer.Option(dashed, help=escape(help), metavar=metavar, show_default=False)
    required = field.is_required()
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if required else None,
        annotation=Annotated[kind if required else kind | None, info],
    )


def _typed(field: FieldInfo) -> str:
    """Default of an option as it is typed on the command line."""
    if isinstance(field.default, bool):
        return "yes" if field.default else "no"
    if isinstance(field.default, tuple):
        return default_words(field).strip("[]").replace(", ", ",")
    return default_words(field)


def _metavar(field: FieldInfo) -> str | None:
    """What the help shows for a value; None leaves it to the command line."""
    return marks(field).get("metavar") or {int: "INTEGER", float: "FLOAT"}.get(_plain_type(field))


def _value_type(annotation: Any) -> type:
    """Type that the command line reads: all but switches are strings, which the settings check.

    So a wrong number gets the same sentence, exit code and JSON document as any other setting.
    """
    return bool if annotation is bool else str


def _plain_type(field: FieldInfo) -> Any:
    """Type of a setting beside None."""
    annotation = field.annotation
    if get_origin(annotation) in (Union, UnionType):
        parts = [part for part in get_args(annotation) if part is not type(None)]
        annotation = parts[0]
    return annotation


def _listing(config: type[Config]) -> inspect.Parameter:
    def callback(wanted: bool) -> None:
        if wanted:
            print_settings(config)
            raise typer.Exit(DONE)

    help = "List all other settings and exit (default: no)."
    info = typer.Option("--settings", callback=callback, is_eager=True, help=help)
    return inspect.Parameter(
        "settings_", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, info]
    )


def only_parameter(instrument: "Instrument") -> inspect.Parameter:
    """Parameter ``--only`` of the command of an instrument, which completes its names."""
    names = ", ".join(selectable(instrument.stages))
    info = typer.Option(
        "--only",
        metavar="NAME,NAME,…",
        help=f"Run only these claims or stages, and the stages that they build on, of {names} "
        "(default: all).",
        show_default=False,
        autocompletion=only_completer(instrument),
    )
    return inspect.Parameter(
        "only_",
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[str | None, info],
    )


def with_parameters(
    command: Callable[..., None], parameters: Sequence[inspect.Parameter]
) -> Callable[..., None]:
    """The command with these parameters before the keywords that its definition adds."""
    names = {parameter.name for parameter in parameters}
    shared = [
        parameter
        for parameter in inspect.signature(command).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and parameter.name not in names
    ]
    every = [*parameters, *shared]
    command.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in every}
    return command


def _is_list(annotation: Any) -> bool:
    """Whether a setting is a list, or a list or nothing."""
    if get_origin(annotation) in (Union, UnionType):
        return any(_is_list(one) for one in get_args(annotation))
    return get_origin(annotation) is tuple


def resolved_settings(
    config: type[C],
    values: Mapping[str, Any],
    overrides: Sequence[str] | None,
    file: Path | None,
    planned: Mapping[str, Any] | None = None,
) -> C:
    """Settings of a command; lists are written ``0.1,0.5`` and read as YAML.

    ``planned`` are those of a planned run, which anything that is given replaces.
    """
    lists = {
        name: value
        for name, value in values.items()
        if isinstance(value, str) and _is_list(config.model_fields[name].annotation)
    }
    scalars = {name: value for name, value in values.items() if name not in lists}
    listed = [f"{name}=[{value}]" for name, value in lists.items()]
    if planned:
        given = {name: value for name, value in scalars.items() if value is not None}
        scalars = {**planned, **given, "out": planned["out"]}
    return config.resolved(scalars, [*listed, *(overrides or ())], file)
