"""The verdicts of ``flowscope sync``, from the tables that its stages wrote."""

from __future__ import annotations

from flowscope.instruments.sync.claims import GAP, ORDER
from flowscope.instruments.sync.rules import judge_commitment_order, judge_internal_gap
from flowscope.lab.view import Records
from flowscope.records import Verdict

__all__ = ["commitment_order", "internal_gap"]


def commitment_order(records: Records) -> list[Verdict]:
    """Whether coarse structure commits before fine detail."""
    gaps = records.table("commitment_gap")
    return [judge_commitment_order(gaps, claim=ORDER, seed=records.settings["seed"])]


def internal_gap(records: Records) -> list[Verdict]:
    """Whether trailing modes keep more energy than leading ones without coupling."""
    table = records.table("internal_gap")
    seed = records.settings["seed"]
    return [judge_internal_gap(table[table["g"] == 0], claim=GAP, seed=seed)]
