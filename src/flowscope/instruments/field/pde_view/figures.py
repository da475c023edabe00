"""Figures of the study: training, states along depth, alignment, information, shorter steps."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pandas as pd

from flowscope.instruments.field.pde_view.names import ARMS, SIMULATOR, TASKS, TRANSFORMER
from flowscope.instruments.field.pde_view.refinement import FINEST
from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.marks import Look
from flowscope.report.drawing.panels import beside
from flowscope.report.drawing.traces import dots, ends, line
from flowscope.report.figure_html import shown
from flowscope.report.rows import above_zero, rows_where
from flowscope.report.source import Source, column, words
from flowscope.report.spec import Figure, Section
from flowscope.report.theme import Picture

__all__ = ["FIGURES", "study_sections"]

_HEIGHT = 320
_ROSE, _SKY = "#a3467e", "#3d8fc0"
_SHOWN = {
    TRANSFORMER: (theme.BLUE, "solid", "circle"),
    "no_residual": (theme.VERMILION, "solid", "square"),
    "no_norm": (theme.GREEN, "solid", "diamond"),
    "neither": (theme.INK, "solid", "triangle-up"),
    "leak_2_norm": (theme.ORANGE, "dash", "square"),
    SIMULATOR: (_ROSE, "dash", "diamond"),
    "leak_0": (theme.GREEN, "dash", "triangle-down"),
    "leak_0_norm": (_SKY, "dash", "circle"),
    "leak_0_norm_shared": (_SKY, "dot", "hexagon"),
}
_LOOKS = {
    arm: Look(ARMS[arm].label, colour, dash, symbol)
    for arm, (colour, dash, symbol) in _SHOWN.items()
}
_PATHS = {
    SIMULATOR: Look("simulator, trained on the task", _ROSE, "solid", "diamond"),
    f"{SIMULATOR}, another seed": Look("simulator of another seed", _ROSE, "dot", "hexagon"),
    f"distilled {SIMULATOR}": Look("simulator, distilled", theme.BLUE, "solid", "circle"),
    "random": Look("simulator with random weights", theme.VERMILION, "dash", "square"),
    "another seed": Look("transformer of another seed", theme.ORANGE, "dot", "triangle-up"),
    "persistence": Look("standing still", theme.INK, "dash", "triangle-down"),
    "straight line": Look("straight line between the ends", theme.GREEN, "dash", ""),
}
_PROBED = {
    (arm, weights): Look(
        f"{ARMS[arm].label}, {weights}", colour, "solid" if weights == "trained" else "dot", symbol
    )
    for arm, colour, symbol in ((TRANSFORMER, theme.BLUE, "circle"), (SIMULATOR, _ROSE, "diamond"))
    for weights in ("trained", "random")
}

Draw = Callable[[pd.DataFrame], Picture]


def _by_task(draw: Draw, table: str, *columns: str) -> Callable[[Source], Picture]:
    """Drawing of one panel a task from the rows of a table."""

    def drawn(source: Source) -> Picture:
        frame = source.table(table, "task", *columns)
        names = dict.fromkeys(words(frame, "task"))
        pictures = {TASKS.get(name, name): draw(rows_where(frame, "task", name)) for name in names}
        if not pictures:
            raise Missing(f"the table “{table}” names no task")
        return next(iter(pictures.values())) if len(pictures) == 1 else beside(pictures)

    return drawn


def _present(looks: Mapping[str, Look], table: str, name: str) -> Callable[[Source], list[Look]]:
    """Looks of the series that a table holds."""

    def entries(source: Source) -> list[Look]:
        there = set(words(source.rows(table, name), name))
        return [look for key, look in looks.items() if key in there]

    return entries


def _curves(
    rows: pd.DataFrame, looks: Mapping[str, Look], name: str, x: str, value: str, axes: Picture
) -> Picture:
    """One curve with its band for each series of a table."""
    place = above_zero if axes["yaxis"].get("type") == "log" else float
    traces = []
    for key, look in looks.items():
        own = rows_where(rows, name, key)
        if len(own):
            said = f"{look.label}, {x} {{{x}:g}}", f"{value}: {{}}"
            traces += line(x, own, ends(value), look, *said, place=place, opacity=0.12)
    return {"data": traces, "layout": axes}


def _axes(x: str, y: str, *, log: str = "") -> Picture:
    """Layout with two axes; ``log`` names those that are logarithmic, e.g. "xy"."""
    scale = {"type": "log", "exponentformat": "power", "dtick": 1}
    return theme.layout(
        theme.axis(x, **(scale if "x" in log else {})),
        theme.axis(y, **(scale if "y" in log else {})),
        _HEIGHT,
    )


def _curve(value: str, title: str, *, log: bool) -> Draw:
    axes = _axes("step", title, log="y" if log else "")
    return partial(_curves, looks=_LOOKS, name="arm", x="step", value=value, axes=axes)


def _depth(value: str, title: str) -> Draw:
    """Curves of the trained networks along depth."""

    def draw(rows: pd.DataFrame) -> Picture:
        trained = rows_where(rows, "weights", "trained")
        return _curves(trained, _LOOKS, "arm", "layer", value, _axes("block", title))

    return draw


def _alignment(value: str, title: str, *, log: bool) -> Draw:
    axes = _axes("block", title, log="y" if log else "")
    return partial(_curves, looks=_PATHS, name="path", x="layer", value=value, axes=axes)


def _information(value: str, title: str) -> Draw:
    """Curves of what a probe reads, of trained networks and of those with random weights."""

    def draw(rows: pd.DataFrame) -> Picture:
        traces = []
        for (arm, weights), look in _PROBED.items():
            own = rows_where(rows_where(rows, "arm", arm), "weights", weights)
            if len(own):
                said = f"{look.label}, block {{layer:g}}", "{} nats"
                traces += line("layer", own, ends(value), look, *said, opacity=0.12)
        return {"data": traces, "layout": _axes("block", title)}

    return draw


def _refinement(rows: pd.DataFrame) -> Picture:
    """Change of the last states when the steps are halved."""
    known = rows[[n < FINEST for n in column(rows, "n")]]
    axes = _axes("short steps in a block", "change by halving", log="xy")
    steps = sorted(set(column(known, "n")))
    axes["xaxis"] |= {"tickvals": steps, "ticktext": [f"{n:g}" for n in steps]}
    return _curves(known, _LOOKS, "arm", "n", "change", axes)


def _rates(source: Source) -> Picture:
    """Largest learning rate of each arm, in the order of the key."""
    frame = source.table("rates", "arm", "largest", "next")
    frame = frame.assign(low=frame["largest"], high=frame["next"])
    marks = [
        dots(
            [float(place)], rows_where(frame, "arm", arm), ("largest", "low", "high"), _LOOKS[arm],
            _LOOKS[arm].label, "trains at {largest:g}, not at {next:g}",
        )
        for place, arm in enumerate(name for name in _LOOKS if name in set(words(frame, "arm")))
    ]  # fmt: skip
    x = theme.axis("", tickvals=[], range=[-0.5, len(marks) - 0.5])
    y = theme.axis("learning rate", type="log", exponentformat="power", dtick=1)
    return {"data": marks, "layout": theme.layout(x, y, _HEIGHT)}


def _said(source: Source) -> str:
    """What the intervals of the study are over."""
    rows = source.rows("alignment", "over", "units")
    if not len(rows):
        return "the number of seeds was not recorded"
    return f"95 % intervals over {column(rows, 'units')[0]:.0f} {words(rows, 'over')[0]}"


def _captioned(text: str) -> Callable[[Source], str]:
    return lambda source: f"{text} Bands: {_said(source)}."


def _plain(text: str) -> Callable[[Source], str]:
    return lambda source: text


_SEEDS = "Bands hold the least and the largest seed."
_ARMS = partial(_present, _LOOKS, name="arm")
FIGURES: dict[str, Figure] = {
    "training_loss": Figure(
        title="Loss along training",
        draw=_by_task(_curve("loss", "loss, nats", log=False), "curves", "arm", "step", "loss"),
        caption=_plain(f"Cross entropy along training, means over pieces of it. {_SEEDS}"),
        key=_ARMS(table="curves"),
    ),
    "gradients": Figure(
        title="Norm of the gradient along training",
        draw=_by_task(
            _curve("gradient", "norm of the gradient", log=True), "curves", "arm", "step"
        ),
        caption=_plain(
            "Norm of the gradient of the weights that all arms have. Compare arms that differ in "
            "one thing alone: the short steps of the dashed arms make their gradients small. "
            f"{_SEEDS}"
        ),
        key=_ARMS(table="curves"),
    ),
    "rates": Figure(
        title="Largest learning rate",
        draw=_rates,
        caption=_plain(
            "Largest rate of a grid at which each arm trains, one task and one seed; the line goes "
            "to the next rate, at which it does not. An arm without a mark trains at none. Arms "
            "stand in the order of the key."
        ),
        key=_ARMS(table="rates"),
        measurements=("rates",),
    ),
    "fidelity": Figure(
        title="Cosine with the input along depth",
        draw=_by_task(_depth("fidelity", "cosine with the input"), "depth", "arm", "layer"),
        caption=_captioned("Mean cosine of a token's state with its state before the first block."),
        key=_ARMS(table="depth"),
    ),
    "tokens_alike": Figure(
        title="Likeness of tokens along depth",
        draw=_by_task(_depth("mean_cosine", "mean cosine"), "depth", "arm", "layer"),
        caption=_captioned("Mean cosine of pairs of tokens."),
        key=_ARMS(table="depth"),
    ),
    "frequencies": Figure(
        title="Energy at high frequencies along depth",
        draw=_by_task(_depth("high_frequency", "share of energy"), "depth", "arm", "layer"),
        caption=_captioned(
            "Share of the energy of the centred states above half of the highest frequency over "
            "positions; one half where nothing is smooth."
        ),
        key=_ARMS(table="depth"),
    ),
    "alignment_error": Figure(
        title="Distance to the transformer's states",
        draw=_by_task(
            _alignment("mse", "relative squared error", log=True),
            "alignment_layers", "path", "layer", "mse",
        ),
        caption=_captioned(
            "Squared error of each path, in units of the transformer's mean square. A simulator "
            "below the line of standing still knows where the transformer goes."
        ),
        key=_present(_PATHS, "alignment_layers", "path"),
    ),
    "alignment_cosine": Figure(
        title="Cosine with the transformer's states",
        draw=_by_task(
            _alignment("cosine", "cosine", log=False), "alignment_layers", "path", "layer", "cosine"
        ),
        caption=_captioned("Mean cosine of the states of a token with those of the transformer."),
        key=_present(_PATHS, "alignment_layers", "path"),
    ),
    "token_information": Figure(
        title="Information about the input token",
        draw=_by_task(_information("token", "nats"), "information", "arm", "weights", "token"),
        caption=_captioned(
            "What a probe reads of the input token from its state, on prompts it has not seen."
        ),
        key=tuple(_PROBED.values()),
    ),
    "label_information": Figure(
        title="Information about the class",
        draw=_by_task(_information("label", "nats"), "information", "arm", "weights", "label"),
        caption=_captioned(
            "What a probe reads of the class from the mean state, on prompts it has not seen."
        ),
        key=tuple(_PROBED.values()),
    ),
    "refinement": Figure(
        title="Blocks in shorter steps",
        draw=_by_task(_refinement, "refinement", "arm", "n", "change"),
        caption=_captioned(
            "Change of the last states when the steps are halved, in units of the way from the "
            "first to the last state. A line of slope −1 is first order."
        ),
        key=_ARMS(table="refinement"),
    ),
}  # fmt: skip
"""Figures of the study."""

_SECTIONS: Sequence[tuple[str, str, tuple[str, ...]]] = (
    ("training", "How do the arms train?", ("training_loss", "gradients", "rates")),
    ("depth", "What do the states do along depth?", ("fidelity", "tokens_alike", "frequencies")),
    ("alignment", "Does a simulator follow the transformer?",
     ("alignment_error", "alignment_cosine")),
    ("information", "Where is information lost?", ("token_information", "label_information")),
    ("refinement", "Is depth a continuous time?", ("refinement",)),
)  # fmt: skip


def study_sections(source: Source) -> list[Section]:
    """Sections of the study, after its claims."""
    return [(anchor, title, partial(_section, names=names)) for anchor, title, names in _SECTIONS]


def _section(source: Source, names: Sequence[str]) -> str:
    return "".join(shown(source, name, FIGURES[name]) for name in names)
