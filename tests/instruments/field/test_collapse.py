"""F2 on noise, on a planted collapse, and where only one of its two effects is there."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from flowscope.instruments.field.collapse.judge import collapse


def _outcome(cosine, fall, n=16):
    """Verdict on tokens that are ``cosine`` more alike and whose log rank falls by ``fall``."""
    rng = np.random.default_rng(0)
    twin, first = rng.normal(0.3, 0.02, n), rng.normal(40, 1, n)
    frame = pd.DataFrame(
        {
            "cosine": twin + cosine + rng.normal(0, 0.02, n),
            "cosine_twin": twin,
            "rank_first": first,
            "rank_last": first * np.exp(-fall + rng.normal(0, 0.02, n)),
        }
    )
    records = SimpleNamespace(table=lambda name, *columns: frame, settings={"seed": 0})
    return collapse(records)[0].outcome


@pytest.mark.parametrize(
    ("cosine", "fall", "outcome"),
    [
        (0.0, 0.0, "abstains"),
        (0.3, 0.3, "holds"),
        (0.3, -0.3, "fails"),
        (-0.3, 0.3, "fails"),
        (0.3, 0.0, "abstains"),
    ],
)
def test_collapse_needs_likeness_and_a_falling_rank(cosine, fall, outcome):
    assert _outcome(cosine, fall) == outcome
