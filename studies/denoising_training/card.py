"""Make a model folder of a training folder: weights, configuration, tokenizer, card, figure.

PYTHONPATH=src python -m studies.denoising_training.card TRAINED FOLDER
"""

# ruff: noqa: E501 (lines of the card are lines of text)

import argparse
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from studies.denoising_training.folder import recorded_sizes, write_folder

from flowscope.nets.sudoku import CHARACTERS, SHAPES, drawn, puzzles

__all__ = ["card", "laid_out"]

WAYS = {
    "confidence": "confidence, one cell a pass",
    "random_order": "random order, one cell a pass",
    "confidence_2": "confidence, two cells a pass",
    "confidence_4": "confidence, four cells a pass",
    "one_pass": "all cells in one pass",
}
_COLOURS = dict(zip(SHAPES, ("#7f7f7f", "#1f4e79", "#b5532a"), strict=True))


def laid_out(trained: Path, folder: Path) -> None:
    """Copy the weights, write configuration, tokenizer, record, figure and card beside them."""
    record = json.loads((trained / "training.json").read_text(encoding="utf-8"))
    judged = trained / "harder.json"
    if judged.exists():
        record["harder"] = json.loads(judged.read_text(encoding="utf-8"))
    weights = trained / "model.safetensors"
    if hashlib.sha256(weights.read_bytes()).hexdigest() != record["sha256"]:
        raise ValueError(f"{weights} is not the file that training.json describes.")
    write_folder(recorded_sizes(record), folder)
    shutil.copyfile(weights, folder / "model.safetensors")
    record["bytes"] = weights.stat().st_size
    text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    (folder / "training.json").write_text(text, encoding="utf-8")
    _curve(record["history"], folder / "training_curve.png")
    (folder / "README.md").write_text(card(record), encoding="utf-8")


def _curve(history: list[dict[str, Any]], path: Path) -> None:
    figure, (loss, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
    steps = [row["step"] for row in history]
    for task, colour in _COLOURS.items():
        rows = [row[task] for row in history]
        loss.plot(steps, [r["train_loss"] for r in rows], "o-", ms=3, color=colour, label=task)
        right.plot(steps, [r["validation_accuracy"] for r in rows], "o-", ms=3, color=colour)
    loss.set(xlabel="step", ylabel="nats per masked cell", yscale="log")
    right.set(xlabel="step", ylabel="validation puzzles solved", ylim=(0, 1.02))
    loss.legend(frameon=False, fontsize=8)
    for axis in (loss, right):
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def card(record: dict[str, Any]) -> str:
    """The card as Markdown; every number in it comes from the record."""
    options, judged, data = record["options"], record["evaluation"], record["data"]
    seconds, test = record["seconds"], next(iter(judged.values()))["puzzles"]
    count = dict(zip(SHAPES, options["batch"], strict=True))
    seen = ", ".join(f"{record['steps'] * count[t] / 1e6:.1f} M ({t})" for t in SHAPES)
    example = drawn(puzzles("sudoku-6x6", 1, seed=2).prompts[0], SHAPES["sudoku-6x6"])
    return f"""# The bundled denoiser

A small masked diffusion model to try `flowscope decode` on without a download: a
`LlamaForCausalLM` with `"is_causal": false`, {record["parameters"]:,} parameters, stored in bfloat16. It
fills the masked cells of sudoku of three sizes, in any order and as many at once as one likes. It
knows nothing else.

| | |
|---|---|
| layers | {options["layers"]} |
| width, heads, feed-forward width | {options["width"]}, {options["heads"]}, {options["feed_forward"]} |
| vocabulary | {len(CHARACTERS)} characters; mask `_` (token 0), padding `#` (token 1) |
| positions | rotary, periods {", ".join(f"{p:.4g}" for p in record["periods"])} tokens |
| prediction | every position predicts itself (no shift), reading all others |

The rotary periods are written as `longrope` factors, because transformers takes a list of periods in
no other way. A version of transformers that does not honour `is_causal` would read a causal model;
with one that does, another last token changes the logits of the first position.

## Text

One character a cell, column letters above, a row letter behind every row; the text has no line
breaks, they are drawn here:

```
{example}
```

Sudoku 4×4, 6×6 and 9×9 have texts of 25, 49 and 100 tokens. `flowscope.nets.sudoku.puzzles(task,
count, seed)` makes puzzles with one solution each, masked, with the places to fill and a checker.

## Data

All puzzles are generated; no data of others were used. {", ".join(f"{rows:,} grids ({task})" for task, rows in data["rows"].items())}
were dug to deep puzzles once; training draws a grid, moves it by a random symmetry (digits, rows,
columns, bands, transpose) and masks a subset of the dug cells ({options["unique"]:.0%} of the texts: one solution)
or any cells at a uniform level (the rest: several solutions, which is why the loss stays above zero).
{seen} puzzles were read.

Test grids are of other symmetry classes than training grids, whatever the seed: for 6×6 and 9×9 the
class of a grid decides its part (7 tenths training, 1 validation, 2 test). There are two classes of 4×4
grids; the larger (192 grids) was trained on, the smaller (96 grids) is test.

## Accuracy

{test:,} test puzzles a task, stored weights in float32 ({_blanks(judged)}).
A puzzle counts when every cell is right. In brackets the 95 % Clopper–Pearson interval; passes are means.

| order | {" | ".join(f"{task}, passes" for task in SHAPES)} |
|---|---|---|---|
{chr(10).join(_way_rows(judged))}
| random weights, one cell a pass | {" | ".join(f"{judged[t]['random_weights']:.1%}" for t in SHAPES)} |

By number of blanks (confidence, one cell a pass):

| task | {" | ".join(f"{name} quarter of the range" for name in ("first", "second", "third", "last"))} |
|---|---|---|---|---|
{chr(10).join(_blank_rows(judged))}
{_harder(record)}
## Decode order

Digits that stood in no row, column or box of the cell just filled, by thirds of the passes; beside it
the mean over all cells still masked. 1 is a cell that follows from its units alone.

| task | order | first third | middle | last | masked cells, first third | middle | last |
|---|---|---|---|---|---|---|---|
{chr(10).join(_order_rows(judged))}

## Training

{record["steps"]:,} steps of {options["batch"][0]} + {options["batch"][1]} + {options["batch"][2]} puzzles (4×4, 6×6, 9×9) in {seconds:.0f} s on {record["device"]},
compilation ({record["seconds_of_compilation"]:.0f} s) included. Cross-entropy per masked cell, tasks weighted {", ".join(map(str, options["shares"]))};
Muon (rate {options["rate"]}) for matrices, AdamW ({options["other_rate"]}) for the rest, cosine to zero over the time; the average of
the weights is what is stored.

    python -m studies.denoising_training.data --out bases.npz
    python -m studies.denoising_training.train --data bases.npz --out TRAINED --seconds {options["seconds"]:g} --rate {options["rate"]}
    python -m studies.denoising_training.card TRAINED FOLDER

![loss and accuracy while it learns](training_curve.png)

python {record["versions"]["python"]}, torch {record["versions"]["torch"]}, numpy {record["versions"]["numpy"]}.

## Files

`model.safetensors`: {record["bytes"]:,} bytes, sha256
`{record["sha256"]}`.
`training.json` holds everything above.
"""


def _blanks(judged: dict[str, Any]) -> str:
    return ", ".join(
        f"{t}: {SHAPES[t].fewest}–{SHAPES[t].most} blanks, mean {judged[t]['blanks']:.1f}"
        for t in SHAPES
    )


def _harder(record: dict[str, Any]) -> str:
    """Puzzles with more blanks than those of the tasks, where `judge.py` has measured them."""
    found = record.get("harder")
    if not found:
        return ""
    low, high = found["range"]
    rows = [
        f"| {WAYS[way]} | {found[way]['accuracy']:.1%} [{found[way]['interval'][0]:.1%}, "
        f"{found[way]['interval'][1]:.1%}] | {found[way]['passes']:.1f} | "
        + ", ".join(f"{r['from']}–{r['to']}: {r['accuracy']:.0%}" for r in found[way]["by_blanks"])
        + " |"
        for way in WAYS
        if way in found
    ]
    return f"""
Harder: {found["puzzles"]} test puzzles of {found["task"]} with {low}–{high} blanks (`judge.py`).

| order | solved | passes | by blanks |
|---|---|---|---|
{chr(10).join(rows)}
"""


def _way_rows(judged: dict[str, Any]) -> list[str]:
    rows = []
    for way, title in WAYS.items():
        cells = []
        for task in SHAPES:
            found = judged[task][way]
            low, high = found["interval"]
            cells.append(f"{found['accuracy']:.1%} [{low:.1%}, {high:.1%}], {found['passes']:.1f}")
        rows.append(f"| {title} | {' | '.join(cells)} |")
    return rows


def _blank_rows(judged: dict[str, Any]) -> list[str]:
    rows = []
    for task in SHAPES:
        cells = [
            f"{row['from']}–{row['to']}: {row['accuracy']:.1%}"
            for row in judged[task]["confidence"]["by_blanks"]
        ]
        rows.append(f"| {task} | {' | '.join(cells)} |")
    return rows


def _order_rows(judged: dict[str, Any]) -> list[str]:
    rows = []
    for task in SHAPES:
        for way, title in (("confidence", "confidence"), ("random_order", "random")):
            found = judged[task][way]
            values = found["choices"] + found["choices_of_masked_cells"]
            rows.append(f"| {task} | {title} | {' | '.join(f'{v:.2f}' for v in values)} |")
    return rows


def main() -> None:
    """Lay out a folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trained", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    laid_out(options.trained, options.folder)


if __name__ == "__main__":
    main()
