"""Several processes on one run: options of an engine, and the commands ``work`` and ``merge``."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from flowscope.cli.completion import complete_run
from flowscope.cli.outcome import Outcome, ended
from flowscope.cli.parameters import Json, RunFolder
from flowscope.cli.terminal import starting
from flowscope.lab.engines.choice import EngineChoice, Share

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "Engaged",
    "EngineName",
    "GpusPerWorker",
    "PlanOnly",
    "Workers",
    "engine_parameters",
    "merge",
    "planned_outcome",
    "planned_settings",
    "work",
]

EngineName = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="NAME",
        help="What makes the shards: local (this process), processes (others of this machine "
        "beside it) or ray (actors of the cluster at RAY_ADDRESS) (default: local).",
    ),
]
Workers = Annotated[
    str | None,
    typer.Option(
        "--workers",
        metavar="INTEGER",
        help="Processes that measure, this one among them (default: one for each GPU, or two).",
    ),
]
GpusPerWorker = Annotated[
    str | None,
    typer.Option(
        "--gpus-per-worker",
        metavar="FLOAT",
        help="GPUs, or the part of one, that each worker takes (default: 1 where there are any).",
    ),
]
PlanOnly = Annotated[
    bool,
    typer.Option(
        "--plan",
        help="Make the run folder for flowscope work, measure nothing and exit (default: no).",
    ),
]


Runs = Annotated[
    list[Path], typer.Argument(help="Run folders over parts.", autocompletion=complete_run)
]


@dataclass(frozen=True, kw_only=True)
class Engaged:
    """What the options of an engine say."""

    choice: EngineChoice
    plan: bool

    @classmethod
    def taken(cls, values: dict[str, Any]) -> "Engaged":
        """Take the options out of the parameters of a command."""
        given = [values.pop(name, None) for name in ("engine_", "workers_", "gpus_per_worker_")]
        return cls(choice=EngineChoice.of(*given), plan=bool(values.pop("plan_", False)))


def engine_parameters() -> list[inspect.Parameter]:
    """Parameters of an engine, for the command of an instrument."""
    kinds = {
        "engine_": EngineName,
        "workers_": Workers,
        "gpus_per_worker_": GpusPerWorker,
        "plan_": PlanOnly,
    }
    return [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=False if name == "plan_" else None,
            annotation=kind,
        )
        for name, kind in kinds.items()
    ]


def planned_outcome(folder: Path, command: str) -> Outcome:
    """What a command prints that has only planned a run."""
    lines = (
        f"planned: {folder}",
        f"workers: flowscope work {folder} --share 1/16   (any number, on any hosts that see it)",
        f"finish:  flowscope {command} --out {folder}",
    )

    def show(console: "Console") -> None:
        for line in lines:
            console.print(escape(line), soft_wrap=True, highlight=False)

    return Outcome(document={"run": str(folder)}, show=show)


def planned_settings(out: str) -> tuple[Path | None, Mapping[str, Any], str | None]:
    """The planned run that ``--out`` names, its settings, and which stages it walks."""
    folder = Path(out)
    try:
        planned = (folder / "workers" / "plan.json").is_file()
    except OSError:  # a name that is too long; who writes the folder says so
        planned = False
    if not planned:
        return None, {}, None
    from flowscope.lab.engines.plan import read_plan

    plan = read_plan(folder)
    if plan is None:
        return None, {}, None
    return folder, plan.settings, ",".join(plan.only) or None


def work(
    run: RunFolder,
    share: Annotated[
        str,
        typer.Option(
            metavar="PART/PARTS",
            show_default=False,
            help="Where to begin, e.g. 3/16; what others leave is made too (default: 1/1).",
        ),
    ] = "1/1",
    device: Annotated[
        str | None,
        typer.Option(help="Device of this worker, of the same kind as that of RUN (default: it)."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make shards of the planned run RUN until nothing is left; then exit with 0.

    Plan a run with --plan, start any number of workers on hosts that see the folder, e.g. as an
    array of SLURM, then finish with the command that --plan prints. Shares may overlap, be missing,
    and run one after the other: each shard is made once.
    """

    def command() -> Outcome:
        part = Share.of(share)
        with starting():
            from flowscope.lab.engines.working import work as worked
            from flowscope.lab.running.bars import displayed_progress
        with displayed_progress() as advance:
            done = worked(run, part, device=device, progress=advance)
        return Outcome(
            document={"run": str(done.run), "made": done.made},
            show=lambda console: console.print(
                f"{done.made} shards made here; nothing is left in {escape(str(done.run))}",
                soft_wrap=True,
            ),
        )

    ended(as_json, command)


def merge(
    parts: Runs,
    out: Annotated[Path, typer.Option(help="Run folder to be made (default: none).")],
    as_json: Json = False,
) -> None:
    """Unite runs over parts of the prompts into the plan of one run over all of them.

    PARTS are runs of one instrument, model and settings over consecutive prompts of one text,
    measured with --skip. Their shards are copied; the command that is printed finds them, measures
    what is not in them, and writes the tables that one run over all prompts would have written.
    """

    def command() -> Outcome:
        with starting():
            from flowscope.lab.engines.merging import merged
        union = merged(parts, out)
        outcome = planned_outcome(union.run, union.instrument)

        def show(console: "Console") -> None:
            console.print(f"{union.shards} shards of {union.prompts} prompts", highlight=False)
            outcome.show(console)

        return Outcome(
            document={"run": str(union.run), "shards": union.shards, "prompts": union.prompts},
            show=show,
        )

    ended(as_json, command)
