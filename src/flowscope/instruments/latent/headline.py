"""Print the result of ``latent``: verdicts and one line per layer."""

import math
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from flowscope.report.terminal import (
    number_or_dash,
    plain_table,
    print_heading,
    print_report_path,
    print_verdicts,
)

__all__ = ["show"]

_SHOWN = {
    "entropy_knn": "entropy", "entropy_gaussian": "Gaussian", "dimension_two_nn": "dimension",
    "same_type_neighbours": "same type", "mean_cosine": "cosine", "effective_rank": "rank",
}  # fmt: skip
_RATES = {
    "rate_difference": "change", "rate_divergence": "mean flow", "lambda_min": "curvature",
}  # fmt: skip
_PARTICLES = {
    "beta": "β", "beta_r2": "R² of β", "value": "v", "value_r2": "R² of v",
    "cosine_change": "cosine", "cosine_predicted": "predicted",
}  # fmt: skip


def show(document: Mapping[str, Any], console: Console) -> None:
    """Print the verdicts and the cloud of every layer."""
    measured = document["measured"]
    facts = [f"{measured['prompts']} prompts", *_facts(document)]
    print_heading(document, facts, console)
    print_verdicts(document, console)
    layers = document["layers"]
    rank = min((row["rank"] for row in layers), default=0)
    for sample, said in (("all", "all tokens"), ("types", "one occurrence of each token")):
        rows = [row for row in layers if row["sample"] == sample and row["rank"] == rank]
        if rows:
            _print_rows(f"{said}, entropies in {rank} coordinates", rows, _SHOWN, console)
    rated = [
        row for row in layers
        if row["sample"] == "all" and any(_there(row, name) for name in _RATES)
    ]  # fmt: skip
    if rated:
        _print_rows("change of entropy in each block, all tokens", rated, _RATES, console)
    clustering = document["clustering"]
    if clustering:
        _print_rows("attention as particles on a sphere", clustering, _PARTICLES, console)
    print_report_path(document, console)


def _facts(document: Mapping[str, Any]) -> list[str]:
    """How many tokens make the cloud, and prompts that do not count."""
    samples = {row["sample"]: row for row in document["samples"]}
    if "all" not in samples:
        return [f"{document['measured']['tokens']} tokens"]
    facts = [f"{samples['all']['tokens']} tokens in the cloud"]
    if "types" in samples:
        facts.append(f"{samples['types']['tokens']} distinct")
    if samples["all"]["copies"]:
        facts.append(f"{samples['all']['copies']} prompts left out that repeat others")
    return facts


def _there(row: Mapping[str, Any], name: str) -> bool:
    value = row.get(name)
    return isinstance(value, int | float) and math.isfinite(value)


def _print_rows(
    title: str, rows: list[Mapping[str, Any]], shown: Mapping[str, str], console: Console
) -> None:
    table = plain_table(("layer", *shown.values()))
    table.title = title
    table.title_justify = "left"
    for row in rows:
        table.add_row(str(row["layer"]), *(number_or_dash(row.get(name), ".3g") for name in shown))
    console.print(table)
