"""Subjects whose answer is known, each turned into what a judge of the audit reads.

A subject is drawn from a seed; for every verdict that applies to it the tables are made by the
functions of the audit and the judge of the audit decides. Nothing of a rule is repeated here.

* paths of hidden states with a linear output: P0, P1 and P2;
* logit steps, iid or scaled by δ^a: P2;
* attention over points in the plane: P3;
* samples of a field: P4.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
import torch

from benchmarks import forecast_panel, locking_slope, rotation_panel
from benchmarks.known_attention import ATTENTION, attention_arrays, contraction_verdict
from flowscope.evidence import not_measured
from flowscope.instruments.audit.adequacy import ADEQUACY
from flowscope.instruments.audit.adequacy.cross_forecasts import cross_forecasts, skill_table
from flowscope.instruments.audit.adequacy.judge import judge_forecast
from flowscope.instruments.audit.adequacy.rule import integrated
from flowscope.instruments.audit.locking import LOCKING
from flowscope.instruments.audit.locking.judge import judge_locking
from flowscope.instruments.audit.locking.tables import slope_tables, with_bound
from flowscope.instruments.audit.paths import Paths
from flowscope.instruments.audit.rotation.judge import judge_rotation, judge_transport
from flowscope.instruments.audit.variation.cross_fit import gate_table, joined_segments
from flowscope.instruments.audit.variation.judge import SegmentEvidence, judge_gate, stretches
from flowscope.probes import Arrays, drawn_donors
from flowscope.records import Unavailable, Verdict
from flowscope.simplex import transplanted_steps

__all__ = ["EXPECTED", "SUBJECTS", "verdicts_of"]

THRESHOLD = 0.15
ABSENT = Unavailable("not part of the panel")
PROMPTS, LAYERS = 24, 8
"""Of the planted paths: fewer than in ``forecast_panel``, so that 20 seeds take minutes."""

Maker = Callable[[int], Iterator[Verdict]]


def depth_arrays(paths: Paths) -> Arrays:
    """Squared steps and states of the logits, by token and layer."""
    z = torch.stack([paths.readout.logits(paths.hidden[:, k]) for k in range(paths.layers + 1)], 1)
    z = (z - z.mean(-1, keepdim=True)).double()
    return {
        "prompt": np.asarray(paths.prompt),
        "step_sq": z.diff(dim=1).square().sum(-1).numpy(),
        "state_sq": z.square().sum(-1).numpy(),
        "logits": z.numpy(),
    }


def path_verdicts(
    paths: Paths, seed: int, *, gate: bool = True, tokens: np.ndarray | None = None
) -> Iterator[Verdict]:
    """P0, P1 and P2 on sampled paths; without the gate, P1 on every layer."""
    depth = depth_arrays(paths)
    prompts = np.unique(depth["prompt"])
    table = gate_table(depth, ABSENT, prompts, threshold=THRESHOLD, resamples=200, seed=seed)
    if gate:
        yield judge_gate(table, units=len(prompts), seed=seed)
        parts = [
            segment(part.first, part.last)
            for part, crossed in zip(*joined_segments(stretches(table)), strict=True)
            if crossed == "holds"
        ]
    else:
        parts = [segment(1, paths.layers)]
    yield forecast_verdict(paths, parts, seed, tokens)
    if gate:
        yield locking_verdict(transplants_of(depth, seed), seed)


def segment(first: int, last: int) -> SegmentEvidence:
    """Layers that the gate lets through."""
    return SegmentEvidence(
        first=first, last=last, kind="segment", relative_variation=0.0, interval=ABSENT,
        share_above=0.0, mass_residual=0.0, mass_bound=1.0, threshold=THRESHOLD,
        random_weights=ABSENT, linear_interpolation=ABSENT, crossed="holds",
    )  # fmt: skip


def forecast_verdict(
    paths: Paths, parts: list[SegmentEvidence], seed: int, tokens: np.ndarray | None
) -> Verdict:
    """P1 on some segments."""
    if not parts:
        return not_measured(ADEQUACY, "no layer passes the gate")
    made = [
        cross_forecasts(paths, part, rank=forecast_panel.RANK, tokens=tokens, seed=seed)
        for part in parts
    ]
    forecasts = [part for part in made if not isinstance(part, Unavailable)]
    if not forecasts:
        return not_measured(
            ADEQUACY, "; ".join(p.reason for p in made if isinstance(p, Unavailable))
        )
    return judge_forecast(integrated(skill_table(forecasts)), seed=seed)


def transplants_of(depth: Arrays, seed: int) -> Arrays:
    """Own and transplanted steps of every token, donors from the same prompt and layer."""
    rng = np.random.default_rng(seed)
    z = torch.from_numpy(depth["logits"])
    columns: dict[str, list[np.ndarray]] = {}
    for number in np.unique(depth["prompt"]):
        rows = torch.from_numpy(np.flatnonzero(depth["prompt"] == number))
        steps = [
            transplanted_steps(z[rows, k], z[rows, k + 1], drawn_donors(len(rows), rng))
            for k in range(z.shape[1] - 1)
        ]
        for name in vars(steps[0]):
            values = torch.stack([getattr(step, name) for step in steps], 1).numpy()
            columns.setdefault(name, []).append(values)
    return {"prompt": depth["prompt"], **{n: np.concatenate(v) for n, v in columns.items()}}


def locking_verdict(transplants: Arrays, seed: int) -> Verdict:
    """P2 on own and transplanted steps."""
    slopes, prompts = slope_tables(transplants, seed=seed)
    oscillation = 2 * transplants["half_oscillation"]
    slopes = with_bound(slopes, {**transplants, "oscillation": oscillation})
    return judge_locking(slopes, prompts, claim=LOCKING, seed=seed)


def planted_paths(seed: int, *, gate: bool = True, **options: float) -> Iterator[Verdict]:
    """Verdicts on planted paths of a linear output."""
    paths = forecast_panel.planted(seed, prompts=PROMPTS, layers=LAYERS, **options)  # type: ignore[arg-type]
    yield from path_verdicts(paths, seed, gate=gate)


def named_paths(seed: int, *, flow: bool) -> Iterator[Verdict]:
    """Verdicts on planted paths of tokens that have names."""
    paths, tokens = forecast_panel.named(seed, flow=flow, prompts=PROMPTS, layers=LAYERS)
    yield from path_verdicts(paths, seed, tokens=tokens)


def planted_steps(seed: int, *, outcomes: int, exponent: float) -> Iterator[Verdict]:
    """P2 on logit steps that are drawn."""
    yield locking_verdict(locking_slope.planted(seed, outcomes, exponent), seed)


def planted_attention(seed: int, *, kind: str) -> Iterator[Verdict]:
    """P3 on attention of which the answer is known."""
    yield contraction_verdict(attention_arrays(kind, seed))


def planted_field(seed: int, *, field: Callable[[int], rotation_panel.Field]) -> Iterator[Verdict]:
    """Both claims of P4 on samples of a field, every sample a unit."""
    points, velocities = field(seed)
    readings = [rotation_panel.read((points, velocities), seed)]
    yield judge_transport(readings, units=len(points), seed=seed)
    yield judge_rotation(readings, units=len(points), seed=seed)


FIELDS: Mapping[str, Callable[[int], rotation_panel.Field]] = {
    "linear rotation of .05": partial(rotation_panel.linear, n=5000, share=0.05),
    "linear rotation of .8": partial(rotation_panel.quiet_linear, n=2000, share=0.8),
    "linear gradient": partial(rotation_panel.quiet_linear, n=2000, share=0.0),
    "log-sum-exp gradient, n = 2000": partial(rotation_panel.log_sum_exp, n=2000),
    "log-sum-exp gradient, n = 5000": partial(rotation_panel.log_sum_exp, n=5000),
    "rough rotation in 2-D": partial(rotation_panel.rough_plane, n=5000, smooth=False),
    "rough rotation in 8-D": partial(rotation_panel.rough_many, n=5000),
}

SUBJECTS: Mapping[str, Maker] = {
    "planted flow": partial(planted_paths, speed=1, drift=1),
    "planted flow, steady": partial(planted_paths, speed=1, drift=1, steady=True),
    "flow of named tokens": partial(named_paths, flow=True),
    "steps by name": partial(named_paths, flow=False),
    "constant drift": partial(planted_paths, speed=0, drift=1),
    "constant drift, all layers": partial(planted_paths, speed=0, drift=1, steady=True),
    "noise": partial(planted_paths, speed=0, drift=0, noise=1),
    "shuffled depth": partial(planted_paths, speed=1, drift=1, shuffled=True),
    "shuffled depth, gate lifted": partial(
        planted_paths, speed=1, drift=1, shuffled=True, gate=False
    ),
    "iid steps, V = 50": partial(planted_steps, outcomes=50, exponent=0.0),
    "iid steps, V = 1000": partial(planted_steps, outcomes=1000, exponent=0.0),
    "locking δ^.1, V = 50": partial(planted_steps, outcomes=50, exponent=0.1),
    "locking δ^.1, V = 1000": partial(planted_steps, outcomes=1000, exponent=0.1),
    "unlocking δ^-.1, V = 50": partial(planted_steps, outcomes=50, exponent=-0.1),
    **{name: partial(planted_field, field=field) for name, field in FIELDS.items()},
    **{f"{kind} attention": partial(planted_attention, kind=kind) for kind in ATTENTION},
}

EXPECTED: Mapping[tuple[str, str], str] = {
    ("planted flow, steady", "P0"): "holds",
    ("planted flow", "P1"): "holds",
    ("planted flow, steady", "P1"): "holds",
    ("flow of named tokens", "P1"): "holds",
    ("steps by name", "P1"): "never holds",
    ("constant drift", "P1"): "never holds",
    ("constant drift, all layers", "P1"): "never holds",
    ("noise", "P1"): "never holds",
    ("shuffled depth", "P0"): "fails",
    ("shuffled depth", "P1"): "never holds",
    ("shuffled depth, gate lifted", "P1"): "never holds",
    ("iid steps, V = 50", "P2"): "never holds",
    ("iid steps, V = 1000", "P2"): "never holds",
    ("locking δ^.1, V = 50", "P2"): "holds",
    ("locking δ^.1, V = 1000", "P2"): "holds",
    ("unlocking δ^-.1, V = 50", "P2"): "fails",
    ("linear gradient", "P4"): "holds",
    ("linear rotation of .8", "P4"): "fails",
    ("rough rotation in 2-D", "P4"): "never holds",
    ("linear rotation of .05", "P4r"): "holds",
    ("linear rotation of .8", "P4r"): "holds",
    ("linear gradient", "P4r"): "never holds",
    ("log-sum-exp gradient, n = 2000", "P4r"): "never holds",
    ("log-sum-exp gradient, n = 5000", "P4r"): "never holds",
    ("gathered attention", "P3"): "holds",
    ("opposite attention", "P3"): "fails",
    ("permuted attention", "P3"): "never holds",
    ("noise attention", "P3"): "never holds",
    ("uniform attention", "P3"): "never holds",
}
"""What a right verdict says of a subject, where the answer is known."""


@torch.no_grad()
def verdicts_of(subject: str, seed: int) -> list[Verdict]:
    """Every verdict that applies to a subject."""
    return list(SUBJECTS[subject](seed))
