"""F1 on noise, on no difference and on a planted contraction."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from flowscope.instruments.field.budget.judge import mixing


def _verdict(shift, scale, n=16):
    rng = np.random.default_rng(0)
    permuted = rng.normal(0.1, 0.05, n)
    frame = pd.DataFrame(
        {"spread_alone": permuted + shift + rng.normal(0, scale, n), "spread_permuted": permuted}
    )
    records = SimpleNamespace(table=lambda name, *columns: frame, settings={"seed": 0})
    return mixing(records)[0].outcome


@pytest.mark.parametrize(
    ("shift", "scale", "outcome"),
    [(0.0, 0.05, "abstains"), (-0.1, 0.01, "holds"), (0.1, 0.01, "fails")],
)
def test_mixing_follows_the_planted_shift(shift, scale, outcome):
    assert _verdict(shift, scale) == outcome


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        ("mean_cosine", "Give longer prompts"),
        ("energy_attention", "post-norm"),
        ("part_others", "not the same tokens"),
        ("", "equal but for rounding"),
    ],
)
def test_mixing_abstains_without_numbers_and_says_why(column, reason):
    empty = pd.DataFrame({"spread_alone": [np.nan], "spread_permuted": [np.nan]})
    blocks = pd.DataFrame(
        {name: [1.0] for name in ("mean_cosine", "energy_attention", "part_others")}
    )
    blocks.loc[:, blocks.columns == column] = np.nan
    tables = {"mixing": empty, "blocks": blocks}
    records = SimpleNamespace(table=lambda name, *columns: tables[name], settings={"seed": 0})
    [verdict] = mixing(records)
    assert verdict.outcome == "abstains"
    assert reason in verdict.because
