"""``flowscope audit``: where along depth a model moves its probability mass."""

from flowscope.instruments.audit.claims import (
    ADEQUACY,
    CONTRACTION,
    LOCKING,
    ROTATION,
    VARIATION,
)
from flowscope.instruments.audit.config import AuditConfig
from flowscope.lab.claim import Table
from flowscope.lab.instrument import Argument, Instrument, Stage

__all__ = ["INSTRUMENT"]

_PASS = ("batch", "curvature_pairs")

# In the order of the file; the keys, which name a row, are beside each table.
_COLUMNS = {
    "layers": (
        "relative_step", "relative_step_low", "relative_step_high", "entropy", "entropy_low",
        "entropy_high", "p_max", "p_max_low", "p_max_high", "tail_mass", "tail_mass_low",
        "tail_mass_high", "margin", "margin_low", "margin_high", "mobility_frobenius",
        "mobility_frobenius_low", "mobility_frobenius_high", "mobility_trace",
        "mobility_trace_low", "mobility_trace_high", "oscillation", "oscillation_low",
        "oscillation_high", "total_variation", "total_variation_low", "total_variation_high",
        "kl_divergence", "kl_divergence_low", "kl_divergence_high", "first_order",
        "first_order_low", "first_order_high", "agreement", "agreement_low", "agreement_high",
        "locked_share", "locked_share_low", "locked_share_high", "segment", "segment_kind",
        "status",
    ),
    "segments": (
        "segment", "kind", "relative_variation", "low", "high", "share_above", "threshold",
        "random_weights", "linear_interpolation", "total_variation", "quadratic_variation",
        "concentration", "tortuosity", "mass_residual", "mass_bound", "decision", "because",
    ),
    "jumps": ("relative_step", "total_variation", "velocity_change"),
    "locking": (
        "tail_mass_high", "n", "tv_median", "tv_q25", "tv_q75", "bound_median",
        "informative_share",
    ),
    "locking_depth": ("count", "share"),
    "tokens": ("mobility_frobenius", "entropy", "p_max", "total_variation", "token", "top_token"),
    "heads": ("entropy_share", "low", "high", "collapsed", "random_weights"),
    "simplex_path": (
        "first", "second", "rest", "first_token", "second_token", "prompt", "position",
    ),
    "curvature": (
        "kappa", "low", "high", "keys_permuted", "random_weights", "pairs", "left_out",
        "negative_share", "pinned_share", "kept_mass", "because", "status",
    ),
    "curvature_response": (
        "scope", "kappa", "low", "high", "change", "change_low", "change_high", "pairs",
        "prompts",
    ),
    "evi": (
        "slack", "slack_low", "slack_high", "progress", "progress_low", "progress_high", "share",
        "share_low", "share_high", "share_shuffled", "share_shuffled_low", "share_shuffled_high",
        "share_straight", "share_straight_low", "share_straight_high", "energy_fell_share",
        "kept_mass", "tokens", "left_out", "because", "status",
    ),
    "adequacy": ("tv", "low", "high", "skill", "skill_low", "skill_high", "tokens"),
    "adequacy_clouds": ("ks", "ks_low", "ks_high", "mmd", "mmd_low", "mmd_high"),
    "drifts": (
        "relative_error", "setting", "status", "because", "chosen", "coordinates",
        "variance_held", "route",
    ),
    "overlay": (
        "tv", "first_order", "restricted", "budget", "budget_informative",
        "restricted_informative", "exceeded", "tokens",
    ),
    "budget": ("segment", "prompt", "error", "largest", "squares", "budget"),
    "depth_loss": (
        "layer", "loss", "loss_low", "loss_high", "increase", "increase_low", "increase_high",
        "mobility", "mobility_low", "mobility_high", "tokens", "free",
    ),
    "rotation": (
        "normalised", "low", "high", "interval_method", "energy", "energy_low", "energy_high",
        "total", "p_value", "degree", "linear", "gradient_control", "planted_control",
        "planted_share", "epsilon", "ridge", "functions", "tokens", "status", "because",
    ),
}  # fmt: skip

INSTRUMENT = Instrument(
    name="audit",
    home=__name__,
    config=AuditConfig,
    prepare="subject.prepare",
    result="result.Audit",
    page="page.PAGE",
    headline="headline.show",
    main_table="layers",
    compare="comparison.compared",
    identity=_PASS,
    studies=("track_t.STUDY",),
    arguments=(
        Argument(
            name="source",
            help="A folder, a hub id, a .gguf file, a model in memory or what `load` returned; the "
            "bundled language model when nothing is given.",
            positional=True,
            setting="model",
        ),
        Argument(
            name="texts",
            help="Prompts, or images for a vision model; the packaged ones when nothing is given.",
            annotation="Sequence[str] | Tensor | None",
            positional=True,
        ),
        Argument(name="tokenizer", help="Used instead of the tokenizer beside the weights."),
    ),
    stages=(
        Stage(
            name="depth",
            home=__name__,
            measure="measuring.depth",
            probes="measuring.depth_probes",
            claims=(VARIATION, LOCKING),
            settings=_PASS,
            tables={
                "layers": Table(
                    purpose="every quantity along depth",
                    keys=("layer",),
                    columns=_COLUMNS["layers"],
                ),
                "segments": Table(
                    purpose="the segments of the depth and their gate",
                    keys=("first_layer", "last_layer"),
                    columns=_COLUMNS["segments"],
                ),
                "jumps": Table(
                    purpose="the steps that are too large to be part of a segment",
                    keys=("layer",),
                    columns=_COLUMNS["jumps"],
                ),
                "locking": Table(
                    purpose="how far a step moves the output, by tail mass",
                    keys=("tail_mass_low",),
                    columns=_COLUMNS["locking"],
                ),
                "locking_depth": Table(
                    purpose="the layer from which the top token never changes",
                    keys=("layer",),
                    columns=_COLUMNS["locking_depth"],
                ),
                "tokens": Table(
                    purpose="the token-by-layer map",
                    keys=("prompt", "position", "layer"),
                    columns=_COLUMNS["tokens"],
                ),
                "heads": Table(
                    purpose="attention entropy by layer and head",
                    keys=("layer", "head"),
                    columns=_COLUMNS["heads"],
                ),
                "simplex_path": Table(
                    purpose="one path on the simplex",
                    keys=("layer",),
                    columns=_COLUMNS["simplex_path"],
                ),
            },
        ),
        Stage(
            name="contraction",
            home=__name__,
            measure="measuring.contraction",
            claims=(CONTRACTION,),
            tables={
                "curvature": Table(
                    purpose="curvature of attention by layer and head",
                    keys=("layer", "head"),
                    columns=_COLUMNS["curvature"],
                ),
                "curvature_response": Table(
                    purpose="curvature under other temperatures and key norms",
                    keys=("kind", "setting", "layer"),
                    columns=_COLUMNS["curvature_response"],
                ),
                "evi": Table(
                    purpose="the evolution variational inequality along the output path",
                    keys=("step",),
                    columns=_COLUMNS["evi"],
                ),
            },
        ),
        Stage(
            name="flow",
            home=__name__,
            measure="measuring.flow",
            probes="measuring.path_probes",
            claims=(ADEQUACY,),
            tables={
                "adequacy": Table(
                    purpose="how well a fitted flow forecasts the layers of other prompts",
                    keys=("first_layer", "last_layer", "layer", "horizon", "forecast"),
                    columns=_COLUMNS["adequacy"],
                ),
                "adequacy_clouds": Table(
                    purpose="forecast and true states compared as clouds of points",
                    keys=("layer", "forecast"),
                    columns=_COLUMNS["adequacy_clouds"],
                ),
                "drifts": Table(
                    purpose="the kinds of drift that were fitted",
                    keys=("first_layer", "last_layer", "half", "drift"),
                    columns=_COLUMNS["drifts"],
                ),
                "overlay": Table(
                    purpose="how far each layer moves the output beside what bounds it",
                    keys=("layer",),
                    columns=_COLUMNS["overlay"],
                ),
                "budget": Table(
                    purpose="the error of the forecast beside the budget of each token",
                    columns=_COLUMNS["budget"],
                ),
                "depth_loss": Table(
                    purpose="what the last layers of a language model are worth",
                    keys=("removed",),
                    columns=_COLUMNS["depth_loss"],
                ),
            },
        ),
        Stage(
            name="rotation",
            home=__name__,
            measure="measuring.rotation",
            probes="measuring.path_probes",
            claims=(ROTATION,),
            tables={
                "rotation": Table(
                    purpose="the share of the motion that turns, by layer",
                    keys=("layer",),
                    columns=_COLUMNS["rotation"],
                )
            },
        ),
    ),
)
