"""The command ``reproduce``: an experiment of a source, or all of them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from flowscope.cli.completion import complete_study, study_names
from flowscope.cli.errors import DONE, ERROR
from flowscope.cli.outcome import Outcome, ended, reported
from flowscope.cli.parameters import (
    ConfigFile,
    Json,
    Open,
    Overrides,
    Revision,
    TokenizerName,
    Trust,
)
from flowscope.cli.sharing import EngineName, GpusPerWorker, Workers
from flowscope.cli.terminal import print_claims, starting
from flowscope.errors import InvalidInputError
from flowscope.lab.engines.choice import EngineChoice
from flowscope.lab.running.bars import displayed_progress

if TYPE_CHECKING:
    from rich.console import Console

    from flowscope.lab.study import Reproduction

__all__ = ["reproduce"]


def _listed_studies() -> str:
    *names, last = study_names()
    return f"{', '.join(names)} or {last}"


def reproduce(
    study: Annotated[
        str, typer.Argument(help=f"{_listed_studies()}; or all.", autocompletion=complete_study)
    ],
    model: Annotated[
        str | None,
        typer.Argument(
            help="A folder, a hub id, or a .gguf file (default: the bundled model of the study).",
            show_default=False,
        ),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(help="A text file, or a .jsonl of prompts (default: that of the study)."),
    ] = None,
    prompts: Annotated[
        str | None,
        typer.Option(metavar="INTEGER", help="Number of prompts (default: that of the study)."),
    ] = None,
    tokens: Annotated[
        str | None,
        typer.Option(
            metavar="INTEGER", help="Tokens used of each prompt (default: that of the study)."
        ),
    ] = None,
    out: Annotated[
        str | None, typer.Option(help="Folder in which the run folder is made (default: out).")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Device of the model, e.g. cuda:0 (default: the CPU).")
    ] = None,
    revision: Revision = None,
    tokenizer: TokenizerName = None,
    trust_remote_code: Trust = False,
    engine: EngineName = None,
    workers: Workers = None,
    gpus_per_worker: GpusPerWorker = None,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME,…",
            help="With all: only these studies (default: all).",
            show_default=False,
        ),
    ] = None,
    skip_gpu: Annotated[
        bool,
        typer.Option("--skip-gpu", help="With all: leave out what needs a GPU (default: no)."),
    ] = False,
    small: Annotated[
        bool,
        typer.Option("--small", help="With all: settings of minutes (default: no)."),
    ] = False,
    overrides: Overrides = None,
    config: ConfigFile = None,
    open_page: Open = False,
    as_json: Json = False,
) -> None:
    """Repeat the experiments of a research paper on a model and compare with its claims.

    Settings come from a YAML file that ships with the study; --config takes another one, and
    --set GROUP.NAME=VALUE changes one. The run folder holds the table of claims, all tables behind
    it, and report.html. "all" runs every study and writes one page of all claims; it resumes.
    """
    given = {"text": text, "prompts": prompts, "tokens": tokens, "out": out, "device": device}
    given |= {"revision": revision, "tokenizer": tokenizer}
    given |= {"trust_remote_code": "true" if trust_remote_code else None}
    reading: dict[str, Any] = {name: value for name, value in given.items() if value is not None}

    def everything() -> Outcome:
        given = (model, text, prompts, tokens, revision, tokenizer, config, *(overrides or ()))
        if any(given) or trust_remote_code:
            raise InvalidInputError(
                "reproduce all takes the models and settings of the studies; of the other options "
                "it takes --out, --device, --engine, --only, --skip-gpu and --small."
            )
        names = tuple(name.strip() for name in (only or "").split(",") if name.strip())
        folder, choice = Path(out or "out"), EngineChoice.of(engine, workers, gpus_per_worker)
        return _all(folder, names, choice, skip_gpu=skip_gpu, small=small, device=device)

    def command() -> Outcome:
        if study == "all":
            return everything()
        if only or skip_gpu or small:
            raise InvalidInputError("--only, --skip-gpu and --small belong to reproduce all.")
        choice = EngineChoice.of(engine, workers, gpus_per_worker)
        with starting():
            from flowscope.lab import study as studies
        result: Reproduction = reported(
            lambda progress: studies.reproduce(
                study,
                model,
                progress=progress,
                file=config,
                overrides=overrides or (),
                choice=choice,
                **reading,
            )
        )
        document = result.to_json()
        return Outcome(
            document=document,
            show=lambda console: print_claims(document, console),
            page=Path(document["report"]),
        )

    ended(as_json, command, open_page=open_page)


def _all(
    out: Path,
    only: tuple[str, ...],
    choice: EngineChoice,
    *,
    skip_gpu: bool,
    small: bool,
    device: str | None,
) -> Outcome:
    """Every study, and the page of all claims."""
    with starting():
        from flowscope.lab.display.reproductions import reproduce_all
    with displayed_progress() as advance:
        found = reproduce_all(
            out,
            only=only,
            skip_gpu=skip_gpu,
            small=small,
            choice=choice,
            device=device,
            progress=advance,
        )

    def show(console: "Console") -> None:
        for entry in found.entries:
            answers = [row["agrees"] for row in entry.rows]
            counts = [f"{answers.count(answer)} {answer}" for answer in dict.fromkeys(answers)]
            words = f"not measured: {entry.missing}" if entry.missing else ", ".join(counts)
            console.print(
                f"[bold]{escape(entry.name)}[/] ({escape(entry.source)})  {escape(words)}",
                highlight=False,
            )
        console.print(f"page: {escape(str(found.page))}", soft_wrap=True)

    return Outcome(
        document=found.to_json(),
        show=show,
        code=ERROR if found.failed else DONE,
        page=found.page,
    )
