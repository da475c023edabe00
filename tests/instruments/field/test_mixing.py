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


def test_mixing_abstains_without_numbers():
    assert _verdict(np.nan, 0.0) == "abstains"
