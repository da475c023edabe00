"""Findings say what the tables hold, each with its interval."""

from types import SimpleNamespace

import pandas as pd
import pytest

from flowscope.instruments.latent.findings import findings
from flowscope.lab.claim import Missing


def _ends(name, value, reach=0.05):
    return {name: value, f"{name}_low": value - reach, f"{name}_high": value + reach}


def _tables():
    layers = [
        {"layer": layer, "sample": "all", "rank": 8, **_ends("mean_cosine", 0.1 * layer),
         **_ends("same_type_neighbours", 0.8 - 0.1 * layer)}
        for layer in range(4)
    ]  # fmt: skip
    turning = {"sample": "types", "route": "difference", "first": 2, "last": 3, "kind": "maximum",
               "expanding": 4.0, **_ends("rate_last", -0.4)}  # fmt: skip
    clustering = [
        {"layer": layer, "beta": 5.0, "value": -0.02, **_ends("value_r2", r2, 0.001)}
        for layer, r2 in ((1, -0.02), (2, 0.01))
    ]
    return {"layers": pd.DataFrame(layers), "turning_layers": pd.DataFrame([turning]),
            "clustering": pd.DataFrame(clustering)}  # fmt: skip


def _records(tables):
    def table(name, *columns):
        if name not in tables or not set(columns) <= set(tables[name]):
            raise Missing(name)
        return tables[name]

    return SimpleNamespace(table=table)


def test_findings_name_layer_number_and_figure():
    alike, repeated, turning, particles = findings(_records(_tables()))
    assert "most alike after block 3: their mean cosine is 0.3" in alike.text
    assert "After block 1 the nearest neighbour" in repeated.text
    assert repeated.interval == pytest.approx((0.65, 0.75))
    assert "one occurrence of each token has a maximum between blocks 2 and 3" in turning.text
    assert "in block 2" in particles.text


def test_a_finding_without_its_table_is_left_out():
    tables = _tables()
    del tables["turning_layers"], tables["clustering"]
    assert len(findings(_records(tables))) == 2
