# Written by `python -m flowscope.lab.api.stub`; change the declarations of instruments.

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pandas import DataFrame

from flowscope import flows, levers, markov, nets, records, replica, simplex, tap, transport
from flowscope.instruments.audit.result import Audit as _Audit
from flowscope.instruments.decode.result import Decode as _Decode
from flowscope.instruments.field.result import Field as _Field
from flowscope.instruments.heads.result import Heads as _Heads
from flowscope.instruments.image.models import MixtureModel
from flowscope.instruments.image.result import Image as _Image
from flowscope.instruments.latent.result import Latent as _Latent
from flowscope.instruments.sync.result import Sync as _Sync
from flowscope.lab.display.compare import Comparison, compare
from flowscope.lab.result import Result, Tables, open_run
from flowscope.lab.running.progress import Progress
from flowscope.lab.study import Reproduction, reproduce
from flowscope.levers import consensus, couple
from flowscope.models.doctor import doctor
from flowscope.models.infilling.infiller import Infiller
from flowscope.models.infilling.loading import infiller
from flowscope.models.loading import Loaded, load
from flowscope.tap import Tap

__version__: str
__all__ = [
    "Audit",
    "Comparison",
    "Decode",
    "Field",
    "Heads",
    "Image",
    "Infiller",
    "Latent",
    "Loaded",
    "MixtureModel",
    "Reproduction",
    "Result",
    "Sync",
    "Tap",
    "__version__",
    "audit",
    "compare",
    "consensus",
    "couple",
    "decode",
    "doctor",
    "field",
    "flows",
    "heads",
    "image",
    "infiller",
    "latent",
    "levers",
    "load",
    "markov",
    "nets",
    "open_run",
    "records",
    "replica",
    "reproduce",
    "simplex",
    "sync",
    "tap",
    "transport",
]

class _AuditTables(Tables):
    layers: DataFrame
    segments: DataFrame
    gate: DataFrame
    jumps: DataFrame
    locking_depth: DataFrame
    tokens: DataFrame
    simplex_path: DataFrame
    locking: DataFrame
    locking_slopes: DataFrame
    locking_prompts: DataFrame
    heads: DataFrame
    curvature: DataFrame
    curvature_response: DataFrame
    evi: DataFrame
    depth_loss: DataFrame
    visible_loss: DataFrame
    adequacy: DataFrame
    adequacy_skill: DataFrame
    adequacy_clouds: DataFrame
    drifts: DataFrame
    overlay: DataFrame
    budget: DataFrame
    rotation: DataFrame

class Audit(_Audit):
    @property
    def tables(self) -> _AuditTables: ...

class _HeadsTables(Tables):
    references: DataFrame
    labels: DataFrame
    geometry: DataFrame
    sentence: DataFrame
    dials: DataFrame

class Heads(_Heads):
    @property
    def tables(self) -> _HeadsTables: ...

class _SyncTables(Tables):
    agreement: DataFrame
    commitment: DataFrame
    commitment_gap: DataFrame
    commitment_order: DataFrame
    coupling_effect: DataFrame
    internal_gap: DataFrame
    internal_gap_twins: DataFrame
    energies: DataFrame
    propagation: DataFrame
    mode_commitment: DataFrame
    speciation: DataFrame
    assumptions: DataFrame

class Sync(_Sync):
    @property
    def tables(self) -> _SyncTables: ...

class _ImageTables(Tables):
    weak_error: DataFrame
    weak_error_slope: DataFrame
    family: DataFrame
    parity: DataFrame
    step_budget: DataFrame
    smoothness: DataFrame
    paths: DataFrame
    rotation: DataFrame
    information: DataFrame
    uturn: DataFrame

class Image(_Image):
    @property
    def tables(self) -> _ImageTables: ...

class _FieldTables(Tables):
    blocks: DataFrame
    token_steps: DataFrame
    mixing: DataFrame
    collapse: DataFrame
    collapse_prompts: DataFrame
    jacobians: DataFrame
    interventions: DataFrame
    intervention_depth: DataFrame
    forecast: DataFrame
    forecast_kinds: DataFrame
    forecast_prompts: DataFrame

class Field(_Field):
    @property
    def tables(self) -> _FieldTables: ...

class _DecodeTables(Tables):
    prompts: DataFrame
    progress: DataFrame
    map: DataFrame
    calibration: DataFrame
    thresholds: DataFrame
    window: DataFrame
    coverage: DataFrame
    policies: DataFrame
    trial_prompts: DataFrame

class Decode(_Decode):
    @property
    def tables(self) -> _DecodeTables: ...

class _LatentTables(Tables):
    layers: DataFrame
    samples: DataFrame
    entropy_controls: DataFrame
    output_entropy: DataFrame
    rates: DataFrame
    curvature_spectrum: DataFrame
    turning_layers: DataFrame
    memory: DataFrame
    refinement: DataFrame
    rate_controls: DataFrame
    clustering: DataFrame
    phases: DataFrame

class Latent(_Latent):
    @property
    def tables(self) -> _LatentTables: ...

def audit(
    source: Any = None,
    texts: Any = None,
    *,
    inputs: Iterable[Mapping[str, Any]] | None = None,
    tokenizer: Any = None,
    out: str | Path | None = None,
    progress: Progress | bool | None = None,
    only: str | Sequence[str] = (),
    text: str | None = None,
    prompts: int = 64,
    skip: int = 0,
    tokens: int = 128,
    special_tokens: bool = True,
    chat: bool = False,
    masked_share: float = 0.15,
    batch: int = 8,
    resamples: int = 200,
    seed: int = 0,
    controls: bool = True,
    control_prompts: int = 8,
    device: str | None = None,
    dtype: str | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
    threshold: float = 0.15,
    readout: Literal["exact", "model"] = "exact",
    locking_tokens: int = 24,
    curvature_pairs: int = 4,
    temperatures: Sequence[float] = (0.5, 0.71, 1.41, 2.0),
    key_norms: Sequence[float] = (0.0, 0.5, 1.5, 2.0),
    evi_positions: int = 4,
    evi_top: int = 8,
    flow_positions: int = 32,
    flow_close: int = 12,
    flow_rank: int = 64,
    drift_features: Literal["plain", "rich"] = "plain",
    rotation_rank: int = 8,
    rotation_layers: int = 10,
) -> Audit: ...
def heads(
    source: Any = None,
    texts: Any = None,
    *,
    inputs: Iterable[Mapping[str, Any]] | None = None,
    tokenizer: Any = None,
    out: str | Path | None = None,
    progress: Progress | bool | None = None,
    only: str | Sequence[str] = (),
    text: str | None = None,
    prompts: int = 16,
    skip: int = 0,
    tokens: int = 128,
    special_tokens: bool = True,
    chat: bool = False,
    masked_share: float = 0.15,
    batch: int = 4,
    resamples: int = 200,
    seed: int = 0,
    controls: bool = True,
    control_prompts: int = 8,
    device: str | None = None,
    dtype: str | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
    chain: Literal["unmasked", "damped", "quasi-stationary"] = "unmasked",
    damping: float = 0.01,
    level: float = 0.05,
    twins: int = 3,
    permutations: int = 3,
    sentence: str | None = None,
    shown_tokens: int = 24,
    charge: float = 0.05,
    dials: bool = True,
    dial_layers: Sequence[int] = (),
    dial_heads: Sequence[int] = (),
    draws: int = 1,
    metric: Sequence[float] = (0.5,),
    exact: Sequence[float] = (0.0,),
    flux: Sequence[float] = (0.0, 0.5),
    alpha: Sequence[float] = (1.0,),
    temperatures: Sequence[float] = (0.71, 1.41),
    squares: Sequence[Sequence[float]] = ((0.0, 1.0), (0.0, 0.0)),
) -> Heads: ...
def sync(
    source: Any = None,
    *,
    scheduler: Any = None,
    encoder: Any = None,
    classes: Sequence[str] = (),
    out: str | Path | None = None,
    progress: Progress | bool | None = None,
    only: str | Sequence[str] = (),
    labels: Sequence[int] = (0,),
    pairs: int = 24,
    finals: int = 128,
    steps: int = 16,
    couplings: Sequence[float] = (0.1, 0.5, 1.0),
    interventions: int = 7,
    sigma: float = 1.0,
    mode_sigma: float = 0.3,
    eta: float = 1.0,
    guidance: float = 1.0,
    coarse: int = 0,
    band: int = 0,
    kept: int = 16,
    draws: int = 199,
    twins: int = 5,
    propagation: bool = True,
    propagation_steps: int = 2,
    propagation_states: int = 1,
    batch: int = 64,
    resamples: int = 1000,
    seed: int = 0,
    device: str | None = None,
    dtype: str | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
) -> Sync: ...
def image(
    source: Any = None,
    *,
    scheduler: Any = None,
    reader: Any = None,
    classes: Sequence[str] = (),
    out: str | Path | None = None,
    progress: Progress | bool | None = None,
    only: str | Sequence[str] = (),
    images: int = 40,
    steps: int = 16,
    bins: int = 64,
    doubling: Sequence[int] = (4, 8, 16),
    family_images: int = 16,
    lams: Sequence[float] = (0.0, 0.5, 1.0),
    integrator: Literal["ddim", "euler"] = "ddim",
    rank: int = 4,
    rotation_times: int = 3,
    rotation_images: int = 2000,
    rotation_degree: int = 2,
    information_images: int = 20,
    uturn_images: int = 12,
    uturn_times: int = 6,
    guidance: float = 1.0,
    batch: int = 40,
    resamples: int = 1000,
    draws: int = 999,
    seed: int = 0,
    device: str | None = None,
    dtype: str | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
) -> Image: ...
def field(
    source: Any = None,
    texts: Any = None,
    *,
    inputs: Iterable[Mapping[str, Any]] | None = None,
    tokenizer: Any = None,
    out: str | Path | None = None,
    progress: Progress | bool | None = None,
    only: str | Sequence[str] = (),
    text: str | None = None,
    prompts: int = 16,
    skip: int = 0,
    tokens: int = 128,
    special_tokens: bool = True,
    chat: bool = False,
    masked_share: float = 0.15,
    batch: int = 4,
    resamples: int = 200,
    seed: int = 0,
    controls: bool = True,
    control_prompts: int = 8,
    device: str | None = None,
    dtype: str | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
    twins: int = 2,
    jacobians: bool = True,
    jacobian_tokens: int = 64,
    products: int = 30,
    interventions: bool = True,
    write_scales: Sequence[float] = (0.25, 0.5, 0.75, 0.9, 1.1, 1.5, 2.0),
    residual_scales: Sequence[float] = (0.0, 0.9, 0.97, 0.99, 1.01, 1.03),
    bits: int = 3,
    draws: int = 64,
) -> Field: ...
def decode(
    source: Any = None,
    texts: Any = None,
    *,
    calibration_texts: Any = None,
    checker: Callable[[list[int]], Any] | None = None,
    tokenizer: Any = None,
    out: str | Path | None = None,
    progress: Progress | bool | None = None,
    only: str | Sequence[str] = (),
    task: str = "sudoku-6x6",
    blanks: Sequence[int] | None = None,
    text: str | None = None,
    answer: int | None = None,
    hidden: float = 0.5,
    tokens: int = 128,
    policy: Sequence[str] = ("threshold", "factor", "prophet", "draft"),
    alpha: float = 0.05,
    delta: float = 0.05,
    method: Literal["learn_then_test", "conformal"] = "learn_then_test",
    calibrate: str | None = None,
    calibration: int = 150,
    prompts: int = 150,
    order: Literal["confidence", "margin", "entropy", "random"] = "confidence",
    rate: int = 1,
    block: int = 0,
    temperature: float = 0.0,
    eos: int | None = None,
    mask: int | None = None,
    shift: bool | None = None,
    windows: Sequence[int] = (12, 8),
    frontier: bool = False,
    controls: bool = True,
    batch: int = 64,
    maps: int = 6,
    resamples: int = 999,
    seed: int = 0,
    device: str | None = None,
    dtype: str | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
) -> Decode: ...
def latent(
    source: Any = None,
    texts: Any = None,
    *,
    inputs: Iterable[Mapping[str, Any]] | None = None,
    tokenizer: Any = None,
    out: str | Path | None = None,
    progress: Progress | bool | None = None,
    only: str | Sequence[str] = (),
    text: str | None = None,
    prompts: int = 32,
    skip: int = 0,
    tokens: int = 128,
    special_tokens: bool = True,
    chat: bool = False,
    masked_share: float = 0.15,
    batch: int = 4,
    resamples: int = 200,
    seed: int = 0,
    controls: bool = True,
    control_prompts: int = 8,
    device: str | None = None,
    dtype: str | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
    points: int = 1500,
    ranks: Sequence[int] = (8, 16),
    neighbour: int = 3,
    halves: int = 48,
    surrogates: int = 3,
    twins: int = 2,
    output_tokens: int = 192,
    refinements: Sequence[int] = (1, 2, 4),
) -> Latent: ...
