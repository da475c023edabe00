"""What a run about the cloud of tokens says in plain sentences."""

from flowscope.errors import Missing
from flowscope.lab.finding import Finding, collected, complete_rows
from flowscope.lab.view import Records
from flowscope.report.numerals import bounds, numeral

__all__ = ["findings"]


def findings(records: Records) -> list[Finding]:
    """Findings about the layers, from their tables."""
    return collected(records, (_collapse, _repetition, _turning, _particles))


def _collapse(records: Records) -> Finding:
    """Whether tokens collapse: the layer with the most alike tokens."""
    names = ("layer", "mean_cosine", "mean_cosine_low", "mean_cosine_high")
    rows = [
        row
        for row in complete_rows(records, "layers", names, ("sample",))
        if row["sample"] == "all" and row["layer"] > 0
    ]
    if not rows:
        raise Missing("layers")
    row = max(rows, key=lambda row: row["mean_cosine"])
    low, high = float(row["mean_cosine_low"]), float(row["mean_cosine_high"])
    return Finding(
        text=f"Tokens are most alike after block {int(row['layer'])}: their mean cosine is "
        f"{numeral(float(row['mean_cosine']))} {bounds(low, high)}.",
        value=float(row["mean_cosine"]),
        interval=(low, high),
        table="layers",
        figure="likeness",
        next="Look at the effective rank beside it: only where that falls, too, tokens collapse.",
    )


def _repetition(records: Records) -> Finding:
    """How often the nearest neighbour is the same token."""
    name = "same_type_neighbours"
    names = ("layer", name, f"{name}_low", f"{name}_high")
    rows = [
        row
        for row in complete_rows(records, "layers", names, ("sample",))
        if row["sample"] == "all" and row["layer"] > 0
    ]
    if not rows:
        raise Missing("layers")
    row = max(rows, key=lambda row: row[name])
    low, high = float(row[f"{name}_low"]), float(row[f"{name}_high"])
    return Finding(
        text=f"After block {int(row['layer'])} the nearest neighbour of a token is the same token "
        f"in another text for a share of {numeral(float(row[name]))} {bounds(low, high)}.",
        value=float(row[name]),
        interval=(low, high),
        table="layers",
        figure="dimension",
        next="Where this is large, read entropies of one occurrence of each token: those of all "
        "tokens are about repetition.",
    )


def _turning(records: Records) -> Finding:
    """The first layer at which the entropy turns."""
    name = "rate_last"
    names = ("first", "last", "expanding", name, f"{name}_low", f"{name}_high")
    rows = complete_rows(records, "turning_layers", names, ("sample", "route", "kind"))
    rows = [row for row in rows if row["route"] == "difference"]
    if not rows:
        raise Missing("turning_layers")
    row = rows[0]
    low, high = float(row[f"{name}_low"]), float(row[f"{name}_high"])
    tokens = "all tokens" if row["sample"] == "all" else "one occurrence of each token"
    return Finding(
        text=f"The entropy of {tokens} has a {row['kind']} between blocks {int(row['first'])} and "
        f"{int(row['last'])}, where {float(row['expanding']):.1f} directions expand: block "
        f"{int(row['last'])} changes it by {numeral(float(row[name]))} {bounds(low, high)} nats.",
        value=float(row[name]),
        interval=(low, high),
        table="turning_layers",
        figure="rates",
        next="Compare the other sample and the other route in the table of turning layers.",
    )


def _particles(records: Records) -> Finding:
    """The block whose attention is most like particles."""
    name = "value_r2"
    names = ("layer", "value", "beta", name, f"{name}_low", f"{name}_high")
    row = max(complete_rows(records, "clustering", names), key=lambda row: row[name])
    low, high = float(row[f"{name}_low"]), float(row[f"{name}_high"])
    return Finding(
        text=f"Attention is most like particles on a sphere in block {int(row['layer'])}: they "
        f"explain a share of {numeral(float(row[name]))} {bounds(low, high)} of its squared "
        f"write, with v = {float(row['value']):+.3g} and β = {float(row['beta']):.3g}.",
        value=float(row[name]),
        interval=(low, high),
        table="clustering",
        figure="particle_fits",
        next="Where this is small, what theory says of clustering particles does not apply.",
    )
