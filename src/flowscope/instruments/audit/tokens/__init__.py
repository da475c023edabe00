"""Where each token is decided: token map, locking depth, one path on the simplex."""

from flowscope.instruments.audit.columns import LAYER, MOVED, POSITION, PROMPT
from flowscope.lab.claim import Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["STAGE", "TABLES"]


_LOCKING_DEPTH = Table(
    purpose="the layer from which the top token never changes",
    keys=("layer",),
    columns=(
        Column("layer", "first layer from which the top token is the final one"),
        Column("count", "number of tokens"),
        Column("share", "share of all tokens"),
    ),
)


_TOKEN_MAP = Table(
    purpose="the token-by-layer map",
    keys=("prompt", "position", "layer"),
    columns=(
        PROMPT,
        POSITION,
        LAYER,
        Column("mobility_frobenius", "Frobenius norm of J = diag(p) − ppᵀ"),
        Column("entropy", "entropy of the output distribution read at this layer", "nat"),
        Column("p_max", "probability of the top token"),
        Column("total_variation", f"{MOVED} into this layer"),
        Column("token", "token that the model reads at this position"),
        Column("top_token", "token with the largest probability at this layer"),
    ),
)


_SIMPLEX_PATH = Table(
    purpose="one path on the simplex",
    keys=("layer",),
    columns=(
        LAYER,
        Column("first", "probability of the token that is on top at the last layer"),
        Column("second", "probability of its strongest rival on the way"),
        Column("rest", "probability of all other tokens"),
        Column("first_token", "token that is on top at the last layer"),
        Column("second_token", "its strongest rival"),
        PROMPT,
        POSITION,
    ),
)


TABLES = {"locking_depth": _LOCKING_DEPTH, "tokens": _TOKEN_MAP, "simplex_path": _SIMPLEX_PATH}

STAGE = Stage(
    name="tokens",
    home=__name__,
    measure="measure.measure",
    uses=("variation",),
    tables=TABLES,
)
