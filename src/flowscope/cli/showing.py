"""What a finished command says in the terminal, eighty columns wide."""

from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from flowscope.runs import Audit, Comparison, Examination

__all__ = [
    "show_audit",
    "show_claims",
    "show_comparison",
    "show_examination",
    "show_heads",
    "show_image",
    "show_sync",
]

_COLOURS = {"holds": "green", "fails": "red", "abstains": "yellow"}
_FURTHEST = 10
_MANY_PAIRS = 16
_MANY_IMAGES = 512
_SHOWN_TIMES = 8


def show_audit(found: "Audit") -> None:
    """The verdicts of an audit, each with its reason, and where the report is."""
    console = Console()
    document = found.to_json()
    measured = document["measured"]
    console.print(
        f"[bold]{escape(document['model'])}[/]  {measured['prompts']} prompts, "
        f"{measured['tokens']} tokens"
    )
    table = Table(box=None, padding=(0, 1), pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for verdict in document["verdicts"]:
        colour = _COLOURS[verdict["decision"]]
        because = escape(verdict["because"])
        table.add_row(f"[bold]{verdict['name']}[/]", f"[{colour}]{verdict['decision']}[/]", because)
    console.print(table)
    console.print(f"report: {escape(document['report'])}", soft_wrap=True)


def show_claims(document: dict[str, Any]) -> None:
    """What a source says beside what was measured."""
    console = Console()
    measured = document["measured"]
    units = next(name for name in ("pairs", "images", "prompts") if name in measured)
    beside = "tokens" if units == "prompts" else "steps"
    amount = f"{measured[units]} {units}, {measured[beside]} {beside}"
    console.print(
        f"[bold]{escape(document['study'])}[/] on [bold]{escape(document['model'])}[/]  {amount}"
    )
    colours = {"yes": "green", "no": "red"}
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    table.add_column(f"{document['source']} says", overflow="fold", ratio=3)
    table.add_column("we measure", overflow="fold", ratio=4)
    table.add_column("agrees?", overflow="fold", min_width=7)
    for claim in document["claims"]:
        colour = colours.get(claim["agrees"], "yellow")
        says = (
            f"[bold]{escape(claim['item'])}[/] ({escape(claim['where'])}): {escape(claim['says'])}"
        )
        table.add_row(says, escape(claim["measured"]), f"[{colour}]{claim['agrees']}[/]")
        table.add_section()
    console.print(table)
    console.print(f"report: {escape(document['report'])}", soft_wrap=True)


def _show_verdicts(console: Console, document: dict[str, Any]) -> None:
    for verdict in document["verdicts"]:
        colour = _COLOURS[verdict["decision"]]
        said = f"[bold]{verdict['name']}[/] [{colour}]{verdict['decision']}[/]"
        console.print(f"{said} {escape(verdict['because'])}")


def show_comparison(found: "Comparison") -> None:
    """What changed from one run to another."""
    console = Console()
    how = "paired by prompt" if found.paired else "unpaired: the texts differ"
    console.print(f"second − first, {how}; 95 % intervals")
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    for name in ("statistic", "depth", "first", "second", "difference", "interval"):
        table.add_column(name, justify="left" if name == "statistic" else "right", no_wrap=True)
    for row in found.to_json()["changes"]:
        numbers = (f"{row[name]:.3g}" for name in ("first", "second", "difference"))
        interval = f"{row['low']:.2g} … {row['high']:.2g}"
        table.add_row(row["statistic"], f"{row['depth']:.1f}", *numbers, interval)
    console.print(table if table.row_count else "no difference outside its interval")
    for row in found.to_json()["verdicts"]:
        if row["first"] != row["second"]:
            console.print(f"{row['name']}: {row['first']} → {row['second']}")


def show_examination(found: "Examination") -> None:
    """What can be measured on a model, what cannot, and why."""
    console = Console()
    verdict = "[bold red]refused[/]" if found.refused else "[bold green]readable[/]"
    console.print(f"[bold]{escape(found.model)}[/]  {found.kind}  {verdict}")
    table = Table(show_header=False, box=None, padding=(0, 1), pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for chain in found.chains:
        table.add_row(
            "chain", f"{escape(chain.name)}: {len(chain)} blocks ({', '.join(chain.streams)})"
        )
    if not found.refused:
        table.add_row("depth", f"{found.blocks} blocks, {found.attention_calls} attention calls")
        table.add_row("writes", " + ".join(found.writes) or "none can be told apart")
        table.add_row("tail", found.tail_words)
    for number, line in enumerate(found.can):
        table.add_row("[green]can[/]" if number == 0 else "", escape(line))
    for number, obstacle in enumerate(found.cannot):
        label = "[yellow]cannot[/]" if number == 0 else ""
        table.add_row(label, f"[bold]{escape(obstacle.what)}[/]: {escape(obstacle.because)}")
    console.print(table)


def show_heads(document: dict[str, Any]) -> None:
    """The verdict on the heads, and those that are furthest from equilibrium."""
    console = Console()
    measured = document["measured"]
    console.print(
        f"[bold]{escape(document['model'])}[/]  {measured['prompts']} prompts, "
        f"{measured['tokens']} tokens, {document['chain']} chain"
    )
    _show_verdicts(console, document)
    console.print(_furthest(document["heads"]))
    console.print(f"report: {escape(document['report'])}", soft_wrap=True)


def _furthest(heads: list[dict[str, Any]]) -> Table:
    """The heads with the highest entropy production, or all reasons why there is none."""
    told = [head for head in heads if head["entropy_production"] is not None]
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    if not told:
        table.add_column("no head has an entropy production", overflow="fold")
        for reason in sorted({head["because"] for head in heads}):
            table.add_row(escape(reason))
        return table
    names = ("layer", "head", "nats/step", "95 % interval", "random", "permuted", "gap", "label")
    for name in names:
        table.add_column(name, justify="left" if name == "label" else "right", no_wrap=True)
    top = sorted(told, key=lambda head: -head["entropy_production"])[:_FURTHEST]
    for head in top:
        low, high = head["interval"] or (None, None)
        interval = "" if low is None else f"{low:.3g} … {high:.3g}"
        numbers = [head[f"entropy_production{end}"] for end in ("", "_random", "_permuted")]
        own, *beside = ("–" if x is None else f"{x:.3g}" for x in [*numbers, head["gap"]])
        place = (str(head["layer"]), str(head["head"]))
        table.add_row(*place, own, interval, *beside, head["label"])
    return table


def show_sync(document: dict[str, Any]) -> None:
    """The verdicts on the replicas, and when they commit."""
    console = Console()
    measured = document["measured"]
    console.print(
        f"[bold]{escape(document['model'])}[/]  {measured['pairs']} pairs, "
        f"{measured['steps']} steps, {escape(', '.join(measured['classes']))}"
    )
    _show_verdicts(console, document)
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    table.add_column("class", overflow="fold")
    table.add_column("coupling", no_wrap=True)
    for name in ("features", "coarse", "fine"):
        table.add_column(f"τ {name}", justify="right", overflow="fold")
    columns = (document["tau_spec"], document["tau_coarse"], document["tau_fine"])
    for row, *others in zip(*columns, strict=True):
        tied = "shared noise" if row["control"] else f"g = {row['g']:g}"
        times = (escape(_time(found)) for found in (row, *others))
        table.add_row(escape(row["class"]), tied, *times)
    console.print(table)
    console.print(f"steps of {measured['steps']}, 95 % intervals over pairs")
    if measured["pairs"] < _MANY_PAIRS:
        console.print(f"a small run: {measured['pairs']} pairs; --pairs 32 narrows the intervals")
    console.print(f"report: {escape(document['report'])}", soft_wrap=True)


def _time(found: dict[str, Any]) -> str:
    if found["interval"] is None:
        return str(found["midpoint"])
    low, high = found["interval"]
    return f"{found['midpoint']:.1f} [{low:.1f}, {high:.1f}]"


def show_image(document: dict[str, Any]) -> None:
    """The verdicts on the samplers, and how the state forgets its class."""
    console = Console()
    measured = document["measured"]
    console.print(
        f"[bold]{escape(document['model'])}[/]  {measured['images']} images, "
        f"{measured['steps']} steps, {escape(measured['space'])}"
    )
    if document["warning"]:
        console.print(f"[yellow]warning[/] {escape(document['warning'])}")
    _show_verdicts(console, document)
    console.print(_parity(document["parity"]))
    for name in ("rotation", "information", "uturn"):
        if isinstance(document[name], dict):
            console.print(f"{name}: {escape(document[name]['abstained'])}")
    if isinstance(document["uturn"], list):
        console.print(_turns(document["uturn"]))
    if measured["images"] < _MANY_IMAGES and measured["space"] != "closed form":
        console.print(
            f"a small run: {measured['images']} images; --images 1000 narrows the intervals"
        )
    console.print(f"report: {escape(document['report'])}", soft_wrap=True)


def _spread(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A few rows from the first to the last."""
    count = min(_SHOWN_TIMES, len(rows))
    places = {round(k * (len(rows) - 1) / max(1, count - 1)) for k in range(count)}
    return [rows[place] for place in sorted(places)]


def _parity(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    for name in ("step", "time", "TV", "95 % interval", "null", "up to", "KS", "null", "up to"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in _spread(rows):
        low, high = row["tv_interval"]
        null = row["null"]
        numbers = (null["tv_null"], null["tv_null_high"], row["ks"], null["ks_null"],
                   null["ks_null_high"])  # fmt: skip
        table.add_row(
            str(row["step"]), str(row["time"]), f"{row['tv']:.3f}", f"{low:.3f} … {high:.3f}",
            *(f"{x:.3f}" for x in numbers),
        )  # fmt: skip
    return table


def _turns(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    names = ("noised to", "log snr", "same class", "95 % interval", "exact", "correlation")
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for row in _spread(rows):
        known = row["same_class"] is not None
        share = f"{row['same_class']:.3f}" if known else "–"
        interval = f"{row['low']:.3f} … {row['high']:.3f}" if known else "–"
        exact = "–" if row["exact"] is None else f"{row['exact']:.3f}"
        alike = "–" if row["correlation"] is None else f"{row['correlation']:.2f}"
        table.add_row(str(row["time"]), f"{row['log_snr']:.1f}", share, interval, exact, alike)
    return table
