"""From scalars per token to the tables of tokens."""

import numpy as np
import pandas as pd

from flowscope.probes import Arrays

__all__ = ["locking_depth_table", "telling_row", "token_table"]


def locking_depth_table(depth: Arrays) -> pd.DataFrame:
    """How many tokens have made up their mind for good at each layer."""
    argmax = depth["argmax"]
    layers = argmax.shape[1]
    differs = argmax != argmax[:, -1:]
    last_change = np.where(differs.any(1), layers - 1 - differs[:, ::-1].argmax(1), -1)
    count = np.bincount(last_change + 1, minlength=layers)
    return pd.DataFrame(
        {"layer": np.arange(layers), "count": count, "share": count / max(count.sum(), 1)}
    )


def token_table(depth: Arrays, prompts: int, positions: int) -> pd.DataFrame:
    """Every layer of the first positions of the first prompts, for a map to look at."""
    rows = np.nonzero((depth["prompt"] < prompts) & (depth["position"] < positions))[0]
    layers = depth["state_sq"].shape[1]
    table = pd.DataFrame(
        {
            "prompt": np.repeat(depth["prompt"][rows], layers),
            "position": np.repeat(depth["position"][rows], layers),
            "layer": np.tile(np.arange(layers), len(rows)),
        }
    )
    for name in ("mobility_frobenius", "entropy", "p_max", "argmax"):
        table[name] = depth[name][rows].ravel()
    blank = np.full((len(rows), 1), np.nan)
    table["total_variation"] = np.hstack([blank, depth["total_variation"][rows]]).ravel()
    return table


def telling_row(depth: Arrays, prompts: int) -> int:
    """A row of the first prompts that makes up its mind half-way: the path worth drawing."""
    rows = np.nonzero(depth["prompt"] < prompts)[0]
    argmax = depth["argmax"][rows]
    late = (argmax != argmax[:, -1:]).sum(1)
    return int(rows[np.argmin(np.abs(late - argmax.shape[1] // 2))])
