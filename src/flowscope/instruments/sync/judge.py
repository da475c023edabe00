"""The verdicts of ``flowscope sync``, from the tables that its stages wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowscope.instruments.sync.claims import GAP, ORDER
from flowscope.instruments.sync.rules import judge_commitment_order, judge_internal_gap
from flowscope.records import Verdict

if TYPE_CHECKING:
    from flowscope.instruments.sync.measuring import SyncBench

__all__ = ["commitment_order", "internal_gap"]


def commitment_order(bench: SyncBench) -> list[Verdict]:
    """Whether coarse structure commits before fine detail."""
    gaps = bench.records.read_table("commitment_gap")
    return [judge_commitment_order(gaps, claim=ORDER, seed=bench.config.seed)]


def internal_gap(bench: SyncBench) -> list[Verdict]:
    """Whether trailing modes keep more energy than leading ones without coupling."""
    table = bench.records.read_table("internal_gap")
    return [judge_internal_gap(table[table["g"] == 0], claim=GAP, seed=bench.config.seed)]
