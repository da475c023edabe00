"""The mathematics on hostile numbers: float32 against float64 on the same input.

Question: does a public function of ``simplex``, ``transport``, ``markov``, ``flows``, ``pde`` or
``replica`` ever return NaN, raise anything but a sentence of flowscope's, or return in float32
another number than in float64?

Peer: the same function on the same numbers in float64. Two answers agree where

    |y₃₂ − y₆₄| ≤ C (ε₃₂ · max(|y₆₄|, u) + max|y₆₄ − y′₆₄| + t) ,

where y′₆₄ are answers to inputs whose entries are changed by one unit of rounding of float32, so
that an ill-conditioned problem is held to what its input can tell; u is the size of the terms that
an answer is the difference of (1 for a probability or a residual of one, 0 where nothing cancels);
C = 256 unless an entry of the table says otherwise, t the smallest normal number of float32. Where
the answer or u is beyond the range of float32, it may be infinite there. An error of one side alone
is counted, and is no failure.

Run: ``python -m benchmarks.attack.fuzz``; writes ``benchmarks/results/attack_fuzz.json``.
"""

import argparse
import dataclasses
import json
import sys
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from benchmarks.attack.numbers import Draw
from benchmarks.attack.subject import Arguments, Seeded, Subject
from benchmarks.machine import described
from flowscope.errors import FlowscopeError

__all__ = ["attacked", "table"]

RESULT = Path(__file__).parents[1] / "results" / "attack_fuzz.json"
_EPSILON, _TINY = float(np.finfo(np.float32).eps), float(np.finfo(np.float32).tiny)
_LARGEST = float(np.finfo(np.float32).max)
_BEYOND = _LARGEST / 256
Values = dict[str, NDArray[np.float64]]


class Failure(AssertionError):  # noqa: N818 - what hypothesis reports
    """A promise that an example breaks."""


def table() -> dict[str, Subject]:
    """All entries by the name of their function, e.g. ``markov.attention_kernel``."""
    from benchmarks.attack.subjects import SUBJECTS

    return SUBJECTS


def check(subject: Subject, number: int, counts: Counter[str]) -> None:
    """Try one example; raise `Failure` where a promise is broken."""
    draw = Draw(number)
    arguments = subject.arguments(draw)
    try:
        _check(subject, arguments, draw.broken, counts)
    except Failure as failure:
        raise Failure(f"{failure}; for {arguments}") from failure


def _check(subject: Subject, arguments: Arguments, broken: bool, counts: Counter[str]) -> None:
    narrow, wide = (_answer(subject, arguments, dtype) for dtype in (np.float32, np.float64))
    counts["examples"] += 1
    counts["not finite or no probability"] += broken
    counts["errors"] += narrow is None and wide is None
    counts["one-sided errors"] += (narrow is None) != (wide is None)
    beyond = broken or _unit(subject, arguments) > _BEYOND
    for values in (narrow, wide):
        if values is not None and not (beyond and subject.passes_nan):
            _refuse_nan(subject, values)
    if narrow is None or wide is None:
        return
    counts["values"] += 1
    if not subject.unequal and not broken:
        _compare(subject, arguments, narrow, wide)


def _unit(subject: Subject, arguments: Arguments) -> float:
    with np.errstate(all="ignore"):
        return subject.unit(arguments) if callable(subject.unit) else subject.unit


def _answer(subject: Subject, arguments: Arguments, dtype: Any) -> Values | None:
    """Numbers of an answer by name; None for a sentence of flowscope's."""
    converted = {name: _converted(x, subject, dtype) for name, x in arguments.items()}
    positional = converted.pop("*", ())
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return dict(_numbers(subject.function(*positional, **converted)))
    except FlowscopeError as error:
        if len(str(error)) < 20:
            raise Failure(f"an error without a sentence: {error!r}") from error
        return None
    except Exception as error:
        raise Failure(f"a raw {type(error).__name__} in {dtype.__name__}: {error}") from error


def _converted(x: Any, subject: Subject, dtype: Any) -> Any:
    if isinstance(x, Seeded):
        return torch.Generator().manual_seed(0)
    if isinstance(x, (list, tuple)):
        return type(x)(_converted(y, subject, dtype) for y in x)
    if isinstance(x, dict):
        return {name: _converted(y, subject, dtype) for name, y in x.items()}
    if not isinstance(x, np.ndarray):
        return x
    with np.errstate(over="ignore"):
        array = x.astype(dtype) if x.dtype == np.float64 else x
    return array if subject.numpy else torch.from_numpy(array.copy())


def _numbers(value: Any, name: str = "") -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Every number of a value, with a name; whole numbers, flags and words are left out."""
    if isinstance(value, torch.Tensor):
        value = value.detach().resolve_conj().numpy()
    if isinstance(value, (complex, np.complexfloating)):
        value = np.asarray(value)
    if isinstance(value, np.ndarray) and np.iscomplexobj(value):
        value = np.stack([value.real, value.imag], -1)
    if isinstance(value, (float, np.floating)) or (
        isinstance(value, np.ndarray) and value.dtype.kind == "f"
    ):
        yield name, np.asarray(value, dtype=np.float64)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _numbers(getattr(value, field.name), f"{name}.{field.name}")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _numbers(item, f"{name}.{key}")
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            yield from _numbers(item, f"{name}.{number}")


def _refuse_nan(subject: Subject, values: Values) -> None:
    for name, value in values.items():
        if np.isnan(value).any() and not name.startswith(tuple(subject.absent)):
            raise Failure(f"NaN in {name or 'the answer'} without an error")


def _compare(subject: Subject, arguments: Arguments, narrow: Values, wide: Values) -> None:
    bounds: dict[str, Any] | None = None
    unit = _unit(subject, arguments)
    if unit > _BEYOND:
        return
    for name, expected in wide.items():
        if name not in narrow or narrow[name].shape != expected.shape:
            continue  # a part that one of them abstains from
        value, target = (np.clip(x, -_LARGEST, _LARGEST) for x in (narrow[name], expected))
        size = np.abs(target[np.isfinite(target)]).max(initial=unit)
        apart = np.abs(value - target)
        if not (apart > subject.factor * (_EPSILON * size + _TINY)).any():
            continue
        bounds = _sensitivity(subject, arguments, wide) if bounds is None else bounds
        allowed = subject.factor * (_EPSILON * size + _TINY + bounds[name])
        if (apart > allowed).any():
            raise Failure(
                f"{name or 'the answer'} differs by {np.nanmax(apart):.3g} between float32 and "
                f"float64, allowed {np.max(allowed):.3g}: {narrow[name]} and {expected}"
            )


def _sensitivity(subject: Subject, arguments: Arguments, wide: Values) -> dict[str, Any]:
    """Largest change of each number when entries change by one unit of rounding of float32."""
    bounds = {name: np.zeros(()) for name in wide}
    for number in range(4):
        random = np.random.default_rng(number)
        changed = _answer(subject, {n: _jittered(x, random) for n, x in arguments.items()}, float)
        for name, value in wide.items():
            if changed is None or name not in changed or changed[name].shape != value.shape:
                bounds[name] = np.asarray(np.inf)  # at the edge of what is defined
            else:
                apart = np.abs(np.clip(changed[name], -_LARGEST, _LARGEST) - value)
                bounds[name] = np.fmax(bounds[name], np.fmax(apart, 0).max(initial=0.0))
    return bounds


def _jittered(x: Any, random: np.random.Generator) -> Any:
    if isinstance(x, (list, tuple)):
        return type(x)(_jittered(y, random) for y in x)
    if isinstance(x, np.ndarray) and x.dtype == np.float64:
        signs = random.choice([-1.0, 1.0], size=x.shape)
        unit = np.where(np.abs(x) < _TINY, 1.4e-45 * (x != 0), np.abs(x) * _EPSILON / 2)
        return x + unit * signs
    return x


def attacked(name: str, examples: int) -> Counter[str]:
    """Try so many examples of one function and return the counts; raise at the first failure.

    The examples of a function are the same at every call.
    """
    subject = table()[name]
    counts: Counter[str] = Counter()

    @seed(zlib.crc32(name.encode()))
    @settings(
        max_examples=max(1, round(examples * subject.share)),
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @given(st.integers(0, 2**62))
    def trial(number: int) -> None:
        check(subject, number, counts)

    trial()
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=2000)
    parser.add_argument("--only", default="", help="start of the names of functions to try")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    torch.set_num_threads(1)
    counts: dict[str, Any] = {}
    broken = []
    for name in table():
        if not name.startswith(options.only):
            continue
        began = time.perf_counter()
        try:
            counts[name] = dict(attacked(name, options.examples))
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            broken.append(name)
            failures = getattr(error, "exceptions", (error,))
            counts[name] = {"failures": [" ".join(str(e).split()) for e in failures]}
        print(f"{name:<44}{time.perf_counter() - began:6.1f} s", counts[name], flush=True)
        _write(counts, options.out)
    if broken:
        sys.exit(f"A promise is broken by {len(broken)} of {len(counts)}: {', '.join(broken)}")


def _write(counts: dict[str, Any], path: Path) -> None:
    """Write the counts of every function, earlier ones of those that were not tried now too."""
    earlier = json.loads(path.read_text(encoding="utf-8"))["functions"] if path.exists() else {}
    latest = earlier | counts
    functions = {name: latest[name] for name in table() if name in latest}
    totals = Counter({"functions": len(functions)})
    for count in functions.values():
        totals.update({name: n for name, n in count.items() if isinstance(n, int)})
        totals["failures"] += "failures" in count
    figures = {"machine": described(), "totals": dict(totals), "functions": functions}
    path.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
