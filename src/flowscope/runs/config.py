"""Configuration: YAML or keyword in, checked values out.

Unknown keys are refused with the nearest name; ``--set a.b=c`` overrides one value.
"""

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    NonNegativeFloat,
    PositiveFloat,
    ValidationError,
)

from flowscope.errors import InvalidInputError

__all__ = [
    "AuditConfig",
    "Config",
    "DoctorConfig",
    "HeadsConfig",
    "ImageConfig",
    "ReadingConfig",
    "SyncConfig",
]


class Config(BaseModel):
    """Base of every command's configuration: frozen, no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    @classmethod
    def resolved(
        cls, given: dict[str, Any], overrides: Iterable[str] = (), file: Path | None = None
    ) -> Self:
        """Defaults, then the file, then what was given, then the ``a.b=c`` overrides.

        Raises
        ------
        InvalidInputError
            For an unknown key (the nearest name is suggested), a value of the wrong type, an
            override that is no assignment, or a file that is no YAML mapping.
        """
        values = _read(file) if file is not None else {}
        values |= {name: value for name, value in given.items() if value is not None}
        for assignment in overrides:
            _assign(values, assignment)
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise InvalidInputError(_sentence(cls, error)) from error


class DoctorConfig(Config):
    """What ``flowscope doctor`` takes."""

    model: str
    device: str | None = None
    dtype: str | None = None
    revision: str | None = None
    blocks: str | tuple[str, ...] = ()
    trust_remote_code: bool = False


class ReadingConfig(Config):
    """What every command that reads a model on texts takes: which model, which texts, how many."""

    model: str | None = None
    text: str | None = None
    prompts: int = Field(64, ge=1)
    tokens: int = Field(128, ge=2)
    batch: int = Field(8, ge=1)
    resamples: int = Field(200, ge=2)
    seed: int = 0
    controls: bool = True
    control_prompts: int = Field(8, ge=1)
    out: str = "out"
    device: str | None = None
    dtype: str | None = None
    revision: str | None = None
    trust_remote_code: bool = False


class AuditConfig(ReadingConfig):
    """What ``flowscope audit`` takes; the defaults are what the output says they are.

    ``batch`` prompts go through the model at a time, fewer where their logits would fill more than
    256 MB.

    For P3: ``curvature_pairs`` rows are paired per prompt (0 leaves P3 out), ``temperatures`` and
    ``key_norms`` are swept on the ``control_prompts`` (1, the model itself, is always among them;
    empty leaves a sweep out), and the inequality along the output path is read at
    ``evi_positions`` tokens per prompt on the union of the ``evi_top`` outcomes of each layer.

    For P1 and P4: the paths of ``flow_positions`` tokens per prompt are kept (0 leaves both out;
    fewer when prompts are many), ``flow_close`` of them compared as whole laws (256 in all, one of
    each prompt at least). Drifts live in
    ``flow_rank`` principal coordinates of the logits, and ``drift_features: rich`` lets them see
    products of coordinates too. Rotation is read in ``rotation_rank`` coordinates at the
    ``rotation_layers`` central layers, in fields of degree ``rotation_degree`` (what turns in finer
    patterns is not seen), its intervals from ``rotation_resamples`` resamples.
    """

    threshold: float = Field(0.15, gt=0)
    curvature_pairs: int = Field(4, ge=0)
    temperatures: tuple[PositiveFloat, ...] = (0.5, 0.71, 1.41, 2.0)
    key_norms: tuple[NonNegativeFloat, ...] = (0.0, 0.5, 1.5, 2.0)
    evi_positions: int = Field(4, ge=0)
    evi_top: int = Field(8, ge=2)
    flow_positions: int = Field(32, ge=0)
    flow_close: int = Field(4, ge=1)
    flow_rank: int = Field(64, ge=2)
    drift_features: Literal["plain", "rich"] = "plain"
    rotation_rank: int = Field(8, ge=2)
    rotation_layers: int = Field(10, ge=1)
    rotation_degree: int = Field(2, ge=1, le=3)
    rotation_resamples: int = Field(1000, ge=20)


class HeadsConfig(ReadingConfig):
    """What ``flowscope heads`` takes.

    ``chain`` is the kernel whose walk is read, ``damping`` the probability of a jump of the damped
    one; a label says whether a walk as long as the text can be told from its reversal at the
    ``level``. The portrait shows ``shown_tokens`` of ``sentence`` (of the first prompt when there
    is none), its magnetic map with this ``charge`` per unit of the logits.

    With ``dials`` the logits of the running model are changed, on ``control_prompts`` prompts, at
    ``dial_layers`` (from 1) and ``dial_heads`` (from 0), as the tables number them, or at all when
    empty: ``metric``, ``exact`` and ``flux`` sectors scaled, columns divided by their degree to the
    power ``alpha``, all divided by ``temperatures``, and the operator square at ``squares`` (a, b).
    Each is compared with ``draws`` random perturbations of equal norm.
    """

    prompts: int = Field(16, ge=1)
    batch: int = Field(4, ge=1)
    chain: Literal["unmasked", "damped", "quasi-stationary"] = "unmasked"
    damping: float = Field(0.01, gt=0, lt=1)
    level: float = Field(0.05, gt=0, lt=1)
    sentence: str | None = None
    shown_tokens: int = Field(24, ge=2, le=64)
    charge: float = Field(0.05, allow_inf_nan=False)
    dials: bool = True
    dial_layers: tuple[int, ...] = ()
    dial_heads: tuple[int, ...] = ()
    draws: int = Field(1, ge=1)
    metric: tuple[FiniteFloat, ...] = (0.5,)
    exact: tuple[FiniteFloat, ...] = (0.0,)
    flux: tuple[FiniteFloat, ...] = (0.0, 0.5)
    alpha: tuple[FiniteFloat, ...] = (1.0,)
    temperatures: tuple[PositiveFloat, ...] = (0.71, 1.41)
    squares: tuple[tuple[FiniteFloat, FiniteFloat], ...] = ((0.0, 1.0), (0.0, 0.0))


class SyncConfig(Config):
    """What ``flowscope sync`` takes.

    Pairs of replicas of each of the ``labels`` are sampled in ``steps`` reverse steps, started with
    the perturbation ``sigma`` (1: independent), coupled with each of the ``couplings`` up to
    ``interventions`` evenly spaced steps and then let go, with the noise of DDPM (``eta`` 1);
    images are compared in the features of ``encoder`` and at two scales (``coarse``: side of the
    low resolution; 0: a quarter of the image). Inside, replicas stay coupled to the end without
    noise, started with ``mode_sigma``; ``kept`` steps of their differences are read in bands of
    ``band`` modes, against ``draws`` exchanges. With ``propagation`` the linear response of every
    block is read at ``propagation_steps`` steps of ``propagation_states`` symmetric trajectories.
    ``batch`` pairs run at a time while images are made; the modes need all pairs in one batch.
    """

    model: str | None = None
    scheduler: str | None = None
    encoder: str | None = None
    labels: tuple[int, ...] = Field((0,), min_length=1)
    pairs: int = Field(8, ge=4)
    steps: int = Field(16, ge=6)
    couplings: tuple[float, ...] = Field((0.1, 0.5, 1.0), min_length=1)
    interventions: int = Field(7, ge=6)
    sigma: float = Field(1.0, ge=0, allow_inf_nan=False)
    mode_sigma: float = Field(0.3, gt=0, allow_inf_nan=False)
    eta: float = Field(1.0, ge=0, le=1)
    guidance: float = Field(1.0, ge=0, allow_inf_nan=False)
    coarse: int = Field(0, ge=0)
    band: int = Field(2, ge=1)
    kept: int = Field(16, ge=2)
    draws: int = Field(199, ge=39)
    propagation: bool = True
    propagation_steps: int = Field(2, ge=2)
    propagation_states: int = Field(1, ge=1)
    batch: int = Field(64, ge=1)
    resamples: int = Field(1000, ge=20)
    seed: int = 0
    out: str = "out"
    device: str | None = None
    dtype: str | None = None
    revision: str | None = None
    trust_remote_code: bool = False


class ImageConfig(Config):
    """What ``flowscope image`` takes.

    ``images`` are sampled in ``steps`` reverse steps by the probability flow and twice by the SDE,
    from the same noise; their values are counted in ``bins`` at every step. The error of sampling
    is read on ``family_images`` others, with each of the ``doubling`` steps and twice as many, for
    the flow and the SDE; the members ``lams`` of the family between them take the same steps. A
    step is that of DDIM with η = λ, or Euler's (``integrator``). The score is read in ``rank``
    principal coordinates of the images in ``rotation_times`` windows of steps, on up to
    ``rotation_images`` of them, in fields of degree ``rotation_degree``. ``information_images`` say
    what a state knows of its class, and ``uturn_images`` are noised to ``uturn_times`` times and
    brought back. Classes are read by ``reader``. ``batch`` images run at a time.
    """

    model: str | None = None
    scheduler: str | None = None
    reader: str | None = None
    images: int = Field(40, ge=8)
    steps: int = Field(16, ge=4)
    bins: int = Field(64, ge=4)
    doubling: tuple[int, ...] = Field((4, 8, 16), min_length=2)
    family_images: int = Field(16, ge=8)
    lams: tuple[float, ...] = Field((0.0, 0.5, 1.0), min_length=1)
    integrator: Literal["ddim", "euler"] = "ddim"
    rank: int = Field(4, ge=2)
    rotation_times: int = Field(3, ge=0)
    rotation_images: int = Field(2000, ge=8)
    rotation_degree: int = Field(2, ge=1, le=3)
    information_images: int = Field(20, ge=0)
    uturn_images: int = Field(12, ge=0)
    uturn_times: int = Field(6, ge=1)
    guidance: float = Field(1.0, ge=0, allow_inf_nan=False)
    batch: int = Field(40, ge=1)
    resamples: int = Field(1000, ge=20)
    draws: int = Field(999, ge=39)
    seed: int = 0
    out: str = "out"
    device: str | None = None
    dtype: str | None = None
    revision: str | None = None
    trust_remote_code: bool = False


def _read(file: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInputError(f"The configuration {file} could not be read: {error}.") from error
    except yaml.YAMLError as error:
        raise InvalidInputError(f"{file} is not valid YAML: {error}") from error
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
    except yaml.YAMLError as error:
        raise InvalidInputError(f"--set {assignment}: the value is not valid YAML.") from error


def _sentence(cls: type[BaseModel], error: ValidationError) -> str:
    problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        names = list(cls.model_fields)
        near = difflib.get_close_matches(str(problem["loc"][-1]), names, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else f" Known: {', '.join(names)}."
        return f"{where!r} is no setting of {cls.__name__}.{hint}"
    if problem["type"] == "missing":
        return f"The setting {where!r} is missing."
    return f"The setting {where!r} is wrong: {problem['msg']}; got {problem['input']!r}."
