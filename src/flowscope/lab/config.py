"""Settings: YAML or keywords in, checked values out, each with its description.

An unknown name is refused with the nearest known one; ``--set a.b=c`` overrides one value.
Nothing here imports torch, because ``flowscope --help`` reads these classes.
"""

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Self, get_args, get_origin

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from flowscope.errors import InvalidInputError

__all__ = [
    "MOST_DRAWS",
    "MOST_INPUTS",
    "Config",
    "ReadingConfig",
    "default_words",
    "description_of",
    "marks",
    "read_settings",
    "setting",
    "shared_setting",
]

MOST_DRAWS = 100_000
"""Resamples that a setting may ask for; intervals no longer change with more."""
MOST_INPUTS = 1_000_000
"""Prompts, images or pairs that a setting may ask for."""
_LAST_SEED = 2**63 - 1
_MARKS = ("option", "metavar", "argument", "unset")


def setting(
    default: Any,
    help: str,
    *,
    option: bool = False,
    metavar: str | None = None,
    argument: bool = False,
    unset: str = "",
    **constraints: Any,
) -> Any:
    """Field of a `Config` with its description.

    Parameters
    ----------
    default
        Value where none is given; ``...`` for a setting that must be given.
    help
        What the setting does and its unit: one sentence without a period at its end.
    option
        Whether the command has an option for it; every other setting goes through ``--set``.
    metavar
        What the help shows for its value, e.g. ``"G,G,…"``.
    argument
        Whether the command takes it by position.
    unset
        What happens when it is None, in words that finish "default: …".
    **constraints
        Bounds of its value, as `pydantic.Field` takes them.
    """
    given = {"option": option, "metavar": metavar, "argument": argument, "unset": unset}
    shown: dict[str, Any] = {name: value for name, value in given.items() if value}
    return Field(default, description=help, json_schema_extra=shown, **constraints)


def marks(field: FieldInfo) -> Mapping[str, Any]:
    """What `setting` says about a field beside its description and its bounds."""
    extra = field.json_schema_extra
    return (
        {name: extra[name] for name in _MARKS if name in extra} if isinstance(extra, dict) else {}
    )


def description_of(field: FieldInfo) -> str:
    """What a setting does, with its choices where it has some; no period at the end."""
    description = str(field.description)
    if get_origin(field.annotation) is not Literal:
        return description
    *choices, last = (str(choice) for choice in get_args(field.annotation))
    return f"{description}: {', '.join(choices)} or {last}"


def default_words(field: FieldInfo) -> str:
    """Default of a setting as ``--set`` takes it, or in words where it is None.

    >>> default_words(setting((0.1, 1.0), "Coupling strengths"))
    '[0.1, 1]'
    """
    if field.is_required():
        return "none, it must be given"
    return (
        str(marks(field).get("unset") or "none") if field.default is None else _yaml(field.default)
    )


def _yaml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(_yaml(part) for part in value)}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


# Settings of several instruments. They are not fields of a common base, because a run folder lists
# its settings in the order of the class, and these come last.
_PLACED = "float32 on the CPU, elsewhere as stored"
_SHARED: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "out": ("out", "Folder in which the run folder is made", {"option": True}),
    "device": (None, "Device of the model, e.g. cuda:0", {"option": True, "unset": "the CPU"}),
    "dtype": (None, "Precision of the weights", {"option": True, "unset": _PLACED}),
    "revision": (
        None,
        "Branch, tag or commit of a hub id",
        {"option": True, "unset": "the main branch"},
    ),
    "trust_remote_code": (
        False,
        "Whether Python code that comes with the weights may run",
        {"option": True},
    ),
    "tokenizer": (
        None,
        "Folder or hub id of a tokenizer",
        {"option": True, "unset": "the one that comes with the weights"},
    ),
    "seed": (0, "Seed of the noise and of resampling", {"option": True, "ge": 0, "le": _LAST_SEED}),
}


def shared_setting(name: str, help: str = "") -> Any:
    """Field of several instruments, e.g. out, device or seed; ``help`` replaces its description."""
    default, usual, given = _SHARED[name]
    return setting(default, help or usual, **given)


class Config(BaseModel):
    """Base of all settings: frozen, no unknown names."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", protected_namespaces=(), allow_inf_nan=False
    )

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_truth(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse true where a number is wanted: it would be read as 1."""
        field = cls.model_fields[str(info.field_name)]
        if isinstance(value, bool) and field.annotation in (int, float):
            raise PydanticCustomError("truth", "")
        return value

    @classmethod
    def resolved(
        cls, given: dict[str, Any], overrides: Iterable[str] = (), file: Path | None = None
    ) -> Self:
        """Defaults, then the file, then what was given, then the ``a.b=c`` overrides.

        Raises
        ------
        InvalidInputError
            For an unknown name (the nearest is suggested), a value of the wrong type, an override
            that is no assignment, or a file that is no YAML mapping.
        """
        values = read_settings(file) if file is not None else {}
        values |= {name: value for name, value in given.items() if value is not None}
        for assignment in overrides:
            _assign(values, assignment)
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise InvalidInputError(_sentence(cls, error)) from error


class ReadingConfig(Config):
    """Settings of an instrument that reads a model on texts: which model, which texts, how many."""

    model: str | None = setting(
        None,
        "A folder, a hub id, or a .gguf file",
        argument=True,
        unset="the bundled language model",
    )
    text: str | None = setting(
        None,
        "A text file, prompts under “text” (.jsonl, .csv, .tsv), or - for standard input",
        option=True,
        unset="packaged prompts",
    )
    prompts: int = setting(64, "Number of prompts", option=True, ge=1, le=MOST_INPUTS)
    skip: int = setting(
        0,
        "Prompts left out before the first one; runs over the parts of a text merge",
        option=True,
        ge=0,
        le=MOST_INPUTS,
    )
    tokens: int = setting(128, "Tokens used of each prompt", option=True, ge=2, le=MOST_INPUTS)
    special_tokens: bool = setting(
        True,
        "Feed the special tokens that the tokenizer adds, as BOS or [CLS] and [SEP]",
        option=True,
    )
    chat: bool = setting(
        False, "Put each text into the chat template of the tokenizer", option=True
    )
    masked_share: float = setting(
        0.15,
        "Share of the tokens of a masked model that are hidden and read; 0 reads visible tokens",
        ge=0,
        le=1,
    )
    batch: int = setting(
        8,
        "Prompts in one pass; fewer if their logits exceed 256 MB (GPU: 1/24 of its memory)",
        ge=1,
    )
    resamples: int = setting(
        200, "Bootstrap resamples of the prompts behind each interval", ge=2, le=MOST_DRAWS
    )
    seed: int = shared_setting("seed", "Seed of resampling and of the random-weights control")
    controls: bool = setting(
        True, "Whether controls are measured, e.g. the model at random weights"
    )
    control_prompts: int = setting(
        8, "Prompts, the first ones, on which controls and changed models are measured", ge=1
    )
    out: str = shared_setting("out")
    device: str | None = shared_setting("device")
    dtype: str | None = shared_setting("dtype")
    revision: str | None = shared_setting("revision")
    trust_remote_code: bool = shared_setting("trust_remote_code")
    tokenizer: str | None = shared_setting("tokenizer")


def read_settings(file: Path) -> dict[str, Any]:
    """Values of a YAML file of settings.

    Raises
    ------
    InvalidInputError
        It cannot be read, or is no mapping.
    """
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInputError(
            f"The configuration {file} could not be read: {error.strerror}. Give a YAML file of "
            "settings."
        ) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"{file} is not valid YAML: {' '.join(str(error).split())}. Write one NAME: VALUE per "
            "line, saved as UTF-8."
        ) from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise InvalidInputError(
            f"{file} must hold a mapping of names to values; it holds a {type(content).__name__}."
        )
    return content


def _assign(values: dict[str, Any], assignment: str) -> None:
    path, equals, text = assignment.partition("=")
    names = path.strip().split(".")
    if not equals or not all(names):
        raise InvalidInputError(f"--set takes name=value or group.name=value; got {assignment!r}.")
    for name in names[:-1]:
        inner = values.setdefault(name, {})
        if not isinstance(inner, dict):
            raise InvalidInputError(f"--set {assignment}: {name!r} holds a value, not a group.")
        values = inner
    try:
        values[names[-1]] = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"--set {assignment[:80]}: the value is not valid YAML. Write a number, a word or a "
            "list like [1, 2]."
        ) from error


def _sentence(cls: type[BaseModel], error: ValidationError) -> str:
    problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"] if part not in _TYPES)
    if problem["type"] == "extra_forbidden":
        names = list(_group(cls, problem["loc"]).model_fields)
        near = difflib.get_close_matches(str(problem["loc"][-1]), names, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"Known names: {', '.join(names)}."
        return f"No setting is named {where!r}. {hint}"
    if problem["type"] == "missing":
        return f"The setting {where!r} is missing."
    field = _group(cls, problem["loc"]).model_fields.get(_name(problem))
    meaning = (
        "" if field is None else f" {description_of(field)} (default: {default_words(field)})."
    )
    return f"The setting {where!r} {_wanted(problem)}; got {_shown(problem['input'])}.{meaning}"


_TYPES = ("str", "int", "float", "bool")  # which of several types of a setting did not fit
_WANTED = {
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be above {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be below {lt}",
    "finite_number": "must be a finite number",
    "too_short": "must hold at least {min_length} values",
    "literal_error": "must be {expected}",
    "string_type": "must be a string",
    "tuple_type": "must be a list",
    "truth": "must be a number",
}
_KINDS = {"int": "must be a whole number", "float": "must be a number", "bool": "must be yes or no"}


def _wanted(problem: ErrorDetails) -> str:
    """What a value must be, as the rest of a sentence about it."""
    kind, bounds = problem["type"], problem.get("ctx", {})
    words = _WANTED.get(kind) or _KINDS.get(kind.partition("_")[0])
    if words is None:
        return f"is wrong: {problem['msg']}"
    endless = kind == "less_than_equal" and 1000 <= bounds["le"] <= MOST_INPUTS
    reason = " (more would take time or memory without end)" if endless else ""
    return words.format(**bounds) + reason


def _name(problem: ErrorDetails) -> str:
    """Name of the setting itself: not its groups, nor the place in a list."""
    names = [part for part in problem["loc"] if isinstance(part, str) and part not in _TYPES]
    return names[-1] if names else ""


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}…"


def _group(cls: type[BaseModel], place: tuple[int | str, ...]) -> type[BaseModel]:
    """The class of settings in which a setting lies; settings of a study have groups."""
    for name in place[:-1]:
        inner = cls.model_fields[str(name)].annotation if str(name) in cls.model_fields else None
        cls = inner if isinstance(inner, type) and issubclass(inner, BaseModel) else cls
    return cls
