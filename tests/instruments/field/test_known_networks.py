"""F1 and F2 through whole runs, on networks built so that the answer is known."""

from functools import partial

import pytest
from benchmarks.field_panel import SIGNS, collapsing, planted, read

GATHERS, SCATTERS = (partial(planted, sign) for sign in SIGNS.values())


def outcome(make, name, seed=3):
    return {verdict.name: verdict.outcome for verdict in read(make(seed), seed)}[name]


@pytest.mark.parametrize(
    ("make", "name", "expected"),
    [
        (GATHERS, "F1", "holds"),
        (SCATTERS, "F1", "fails"),
        (collapsing, "F2", "holds"),
    ],
)
def test_a_known_network_is_read_as_it_was_built(make, name, expected):
    assert outcome(make, name) == expected
