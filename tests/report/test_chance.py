"""How many rows of a table of claims disagree by chance: what is counted, and its sentence."""

import math

import pandas as pd
import pytest

from flowscope.lab.statements import Statement, chance_of, not_compared, side_of, statement_rows
from flowscope.report.parts.chance import chance_of_claims


def _statement(item, agrees, by_chance):
    words = {"where": "§1", "says": "it falls", "measured": "−1", "rule": "interval"}
    return Statement(item=item, agrees=agrees, by_chance=by_chance, **words)


def _claims(*rows):
    return statement_rows([lambda row=row: _statement(*row) for row in rows])


def test_only_rows_that_intervals_judge_are_counted():
    claims = _claims(
        ("side", "yes", chance_of()),
        ("several", "no", chance_of(3)),
        ("wide", "cannot be told", chance_of()),
        ("identity", "yes", math.nan),
        ("absent", "not measured", chance_of()),
    )
    chance = chance_of_claims(claims)
    assert (chance.rows, chance.total) == (3, 5)
    assert chance.expected == pytest.approx(0.25)
    assert chance.sentence.startswith("3 of 5 rows are decided by 95\u00a0% intervals")
    assert "at most 0.25 of these rows would disagree by chance" in chance.sentence


def test_a_statement_without_a_number_is_not_counted():
    claims = statement_rows([lambda: not_compared("a", "§1", "it falls", "interval above 0")])
    assert chance_of_claims(claims).rows == 0


def test_a_table_of_an_earlier_version_says_that_it_does_not_know():
    chance = chance_of_claims(_claims(("side", "yes", 0.05)).drop(columns="by_chance"))
    assert not chance.recorded
    assert chance.to_json()["sentence"] == "This run does not record which rows intervals decide."


def test_a_bound_is_a_probability():
    assert chance_of(30) == 1
    assert math.isnan(chance_of(0))


def test_the_bound_holds_for_true_claims_at_their_edge():
    """A claim "above 0" whose number is 0: intervals that miss make a no in at most 5 %."""
    noise = pd.Series(range(-500, 501)) / 500 * 2.6  # more than covers ±1.96 standard errors
    weights = (-(noise**2) / 2).map(math.exp)
    wrong = noise.map(lambda x: side_of(x - 1.96, x + 1.96) == "no")
    assert 0 < float((weights * wrong).sum() / weights.sum()) <= chance_of()
