"""The command line: arguments in, runs started, results shown. No logic of its own.

Exit codes: 0 done, 1 error (or the model is refused), 3 abstained, 130 interrupted. With ``--json``
one JSON document is on standard output and nothing else; progress and warnings go to stderr.
"""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from flowscope import __version__
from flowscope.cli.frame import (
    ABSTAINED,
    DONE,
    ERROR,
    ConfigFile,
    Device,
    Dtype,
    Json,
    Model,
    Out,
    Overrides,
    Seed,
    Text,
    Tokens,
    app,
    reported,
    starting,
    told,
)
from flowscope.cli.showing import (
    show_audit,
    show_claims,
    show_comparison,
    show_examination,
    show_heads,
    show_image,
    show_sync,
)

__all__ = ["main"]


def main() -> None:
    """Entry point of the ``flowscope`` command."""
    app()


def _version(wanted: bool) -> None:
    if wanted:
        print(f"flowscope {__version__}")
        raise typer.Exit(DONE)


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
def doctor(
    model: Annotated[str, typer.Argument(help="A folder, a hub id, or a .gguf file.")],
    as_json: Json = False,
    overrides: Overrides = None,
    config: ConfigFile = None,
    device: Device = None,
    dtype: Dtype = None,
    revision: Annotated[str | None, typer.Option(help="Revision of a hub id.")] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Let code beside the weights run.")
    ] = False,
) -> None:
    """Show what can be measured on MODEL, what cannot, and why.

    The model is run on two short rows, bare and under the tap; what is shown is what was seen.
    Exit code 1 when the model is refused.
    """
    given: dict[str, Any] = {"model": model, "device": device, "dtype": dtype}
    given |= {"revision": revision, "trust_remote_code": trust_remote_code or None}
    with told(as_json):
        with starting():
            from flowscope.runs import DoctorConfig, examined

            settings = DoctorConfig.resolved(given, overrides or (), config)
        found = examined(settings)
    if as_json:
        print(json.dumps(found.to_json(), ensure_ascii=False))
    else:
        show_examination(found)
    raise typer.Exit(ERROR if found.refused else DONE)


@app.command()
def audit(
    model: Model = None,
    as_json: Json = False,
    overrides: Overrides = None,
    config: ConfigFile = None,
    text: Text = None,
    prompts: Annotated[int | None, typer.Option(help="How many prompts (default: 64).")] = None,
    tokens: Tokens = None,
    out: Out = None,
    device: Device = None,
    dtype: Dtype = None,
    seed: Seed = None,
) -> None:
    """Show where along depth MODEL moves its probability mass, and where it has made up its mind.

    Writes a run folder with tables, verdicts P0 to P4 and report.html. A run that was
    interrupted is taken up where it stopped. Exit code 3 when every verdict abstains.
    """
    given = {
        "model": model,
        "text": text,
        "prompts": prompts,
        "tokens": tokens,
        "out": out,
        "device": device,
        "dtype": dtype,
        "seed": seed,
    }
    with told(as_json):
        with starting():
            from flowscope.runs import AuditConfig, audited

            settings = AuditConfig.resolved(given, overrides or (), config)
        found = reported(lambda advance: audited(settings, advance))
        document = found.to_json()
    if as_json:
        print(json.dumps(document, ensure_ascii=False))
    else:
        show_audit(found)
    abstained = all(v["decision"] == "abstains" for v in document["verdicts"])
    raise typer.Exit(ABSTAINED if abstained else DONE)


@app.command()
def heads(
    model: Model = None,
    as_json: Json = False,
    overrides: Overrides = None,
    config: ConfigFile = None,
    chain: Annotated[
        str | None,
        typer.Option(help="unmasked, damped or quasi-stationary (default: unmasked)."),
    ] = None,
    damping: Annotated[
        float | None, typer.Option(help="Chance of a jump on the damped chain (default: .01).")
    ] = None,
    sentence: Annotated[
        str | None, typer.Option(help="Text of the portrait (default: start of the first prompt).")
    ] = None,
    dials: Annotated[
        bool | None,
        typer.Option("--dials/--no-dials", help="Change the running model (default: yes)."),
    ] = None,
    text: Text = None,
    prompts: Annotated[int | None, typer.Option(help="How many prompts (default: 16).")] = None,
    tokens: Tokens = None,
    out: Out = None,
    device: Device = None,
    dtype: Dtype = None,
    seed: Seed = None,
) -> None:
    """Show how irreversible every attention head of MODEL is, and what its chain ranks.

    A causal mask absorbs every walk at the first token, so a label needs another chain: logits
    without the mask, the model's own kernel with jumps (damped), or its law conditioned on not
    being absorbed (quasi-stationary, no label). Writes a run folder with report.html. Exit code
    3 when no head can be labelled.
    """
    given = {"model": model, "chain": chain, "damping": damping, "sentence": sentence}
    given |= {"dials": dials, "text": text, "prompts": prompts, "tokens": tokens, "out": out}
    given |= {"device": device, "dtype": dtype, "seed": seed}
    with told(as_json):
        with starting():
            from flowscope.runs import HeadsConfig, heads_of

            settings = HeadsConfig.resolved(given, overrides or (), config)
        found = reported(lambda advance: heads_of(settings, advance))
        document = found.to_json()
    if as_json:
        print(json.dumps(document, ensure_ascii=False))
    else:
        show_heads(document)
    refused = all(head["label"] == "refused" for head in document["heads"])
    raise typer.Exit(ABSTAINED if refused else DONE)


@app.command()
def sync(
    model: Annotated[
        str | None,
        typer.Argument(help="A pipeline folder or a hub id; the bundled DiT if none."),
    ] = None,
    as_json: Json = False,
    overrides: Overrides = None,
    config: ConfigFile = None,
    couplings: Annotated[
        str | None,
        typer.Option(metavar="G,G,…", help="Coupling strengths in [0, 1] (default: .1,.5,1)."),
    ] = None,
    pairs: Annotated[int | None, typer.Option(help="Pairs of replicas (default: 8).")] = None,
    steps: Annotated[int | None, typer.Option(help="Reverse steps (default: 16).")] = None,
    labels: Annotated[
        str | None, typer.Option(metavar="N,N,…", help="Classes by number (default: 0).")
    ] = None,
    encoder: Annotated[
        str | None, typer.Option(help="Folder of an image model that compares outcomes.")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(help="Folder of the schedule, where the model brings none.")
    ] = None,
    out: Out = None,
    device: Device = None,
    dtype: Dtype = None,
    seed: Seed = None,
) -> None:
    """Show when two coupled generations of MODEL commit, at which scale and in which layer.

    Two replicas share their attention with strength g up to a step and are then let go. Writes a
    run folder with commitment times, the internal gap beside its null, and report.html; a run that
    was interrupted is taken up where it stopped. The defaults are a small run (8 pairs): its
    intervals are wide. Exit code 3 when every verdict abstains.
    """
    given = {"model": model, "pairs": pairs, "steps": steps, "encoder": encoder}
    given |= {"scheduler": scheduler, "out": out, "device": device, "dtype": dtype, "seed": seed}
    with told(as_json):
        with starting():
            from flowscope.runs import SyncConfig, sync_of

            lists = {"couplings": couplings, "labels": labels}
            listed = [f"{name}=[{values}]" for name, values in lists.items() if values is not None]
            settings = SyncConfig.resolved(given, [*listed, *(overrides or ())], config)
        found = reported(lambda advance: sync_of(settings, advance))
        document = found.to_json()
    if as_json:
        print(json.dumps(document, ensure_ascii=False))
    else:
        show_sync(document)
    abstained = all(v["decision"] == "abstains" for v in document["verdicts"])
    raise typer.Exit(ABSTAINED if abstained else DONE)


@app.command()
def image(
    model: Annotated[
        str | None,
        typer.Argument(help="A pipeline folder, a hub id, or 'mixture'; the bundled DiT if none."),
    ] = None,
    as_json: Json = False,
    overrides: Overrides = None,
    config: ConfigFile = None,
    images: Annotated[int | None, typer.Option(help="Images along paths (default: 40).")] = None,
    steps: Annotated[int | None, typer.Option(help="Reverse steps (default: 16).")] = None,
    doubling: Annotated[
        str | None,
        typer.Option(metavar="K,K,…", help="Steps that are doubled (default: 4,8,16)."),
    ] = None,
    lams: Annotated[
        str | None,
        typer.Option(metavar="L,L,…", help="Members from ODE, 0, to SDE, 1 (default: 0,.5,1)."),
    ] = None,
    bins: Annotated[int | None, typer.Option(help="Bins of a histogram (default: 64).")] = None,
    reader: Annotated[
        str | None, typer.Option(help="Folder of an image classifier that reads classes.")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(help="Folder of the schedule, where the model brings none.")
    ] = None,
    out: Out = None,
    device: Device = None,
    dtype: Dtype = None,
    seed: Seed = None,
) -> None:
    """Compare the probability flow of MODEL with its SDE, and read its score.

    Do they share their marginals, does the error of sampling fall at first order, does the
    learned score turn, and when does an image decide its class? Writes a run folder with
    report.html; a run that was interrupted is taken up where it stopped. 'mixture' reads two
    Gaussians with their exact score. The defaults are a small run (40 images): its intervals are
    wide. Exit code 3 when every verdict abstains.
    """
    given = {"model": model, "images": images, "steps": steps, "bins": bins, "reader": reader}
    given |= {"scheduler": scheduler, "out": out, "device": device, "dtype": dtype, "seed": seed}
    with told(as_json):
        with starting():
            from flowscope.runs import ImageConfig, image_of

            lists = {"doubling": doubling, "lams": lams}
            listed = [f"{name}=[{values}]" for name, values in lists.items() if values is not None]
            settings = ImageConfig.resolved(given, [*listed, *(overrides or ())], config)
        found = reported(lambda advance: image_of(settings, advance))
        document = found.to_json()
    if as_json:
        print(json.dumps(document, ensure_ascii=False))
    else:
        show_image(document)
    abstained = all(v["decision"] == "abstains" for v in document["verdicts"])
    raise typer.Exit(ABSTAINED if abstained else DONE)


@app.command()
def reproduce(
    study: Annotated[
        str,
        typer.Argument(help="track_t, track_i, diffusion_attention or synchronization_gap."),
    ],
    model: Model = None,
    as_json: Json = False,
    overrides: Overrides = None,
    config: ConfigFile = None,
    text: Annotated[str | None, typer.Option(help="A text file, or a .jsonl of prompts.")] = None,
    prompts: Annotated[int | None, typer.Option(help="How many prompts.")] = None,
    tokens: Annotated[int | None, typer.Option(help="How many tokens of each.")] = None,
    out: Out = None,
    device: Device = None,
) -> None:
    """Run one experiment of the sources on MODEL and show what agrees with them.

    Settings come from the study's YAML; --config takes another one, --set audit.seed=1 changes
    one. The table of claims, every table behind it and report.html are in the run folder.
    """
    reading = {"text": text, "prompts": prompts, "tokens": tokens, "out": out, "device": device}
    with told(as_json):
        with starting():
            from flowscope.runs import reproduce as run
        given: dict[str, Any] = {"file": config, "overrides": overrides or (), **reading}
        found = reported(lambda advance: run(study, model, progress=advance, **given))
        document = found.to_json()
    if as_json:
        print(json.dumps(document, ensure_ascii=False))
    else:
        show_claims(document)


@app.command()
def report(run: Annotated[Path, typer.Argument(help="A run folder.")]) -> None:
    """Rebuild report.html and the figures of RUN from its tables; no model is needed."""
    with told(False):
        from flowscope.runs import rebuilt

        page = rebuilt(run)
    Console().print(f"report: {escape(str(page))}", soft_wrap=True)


@app.command()
def compare(
    first: Annotated[Path, typer.Argument(help="A run folder.")],
    second: Annotated[Path, typer.Argument(help="Another run folder.")],
    as_json: Json = False,
) -> None:
    """Show what changed from the run FIRST to the run SECOND, with intervals.

    Differences are taken within prompts when both runs read the same texts.
    """
    with told(as_json):
        from flowscope.runs import compared_folders

        found = compared_folders(first, second)
    if as_json:
        print(json.dumps(found.to_json(), ensure_ascii=False))
        return
    show_comparison(found)


@app.command()
def models() -> None:
    """List the models that ship with flowscope."""
    with told(False):
        from flowscope.runs import bundled_models

        for model in bundled_models():
            print(
                f"{model.name}: {model.layers} layers, {model.parameters:,} parameters, "
                f"{model.quality}"
            )
