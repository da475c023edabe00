"""Evaluate trained weights on puzzles of another depth; the card reads ``harder.json``.

PYTHONPATH=src python -m studies.denoising_training.judge TRAINED --task sudoku-9x9 --blanks 45 57
"""

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from studies.denoising_training.evaluation import evaluated
from studies.denoising_training.folder import recorded_sizes
from studies.denoising_training.network import denoiser_of
from studies.denoising_training.train import WAYS

from flowscope.nets.sudoku import SHAPES, puzzles

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Write ``harder.json``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trained", type=Path)
    parser.add_argument("--task", default="sudoku-9x9", choices=list(SHAPES))
    parser.add_argument("--blanks", type=int, nargs=2, default=(45, 57))
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--out", type=Path, help="folder of harder.json; TRAINED by default")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    options = parser.parse_args(arguments)
    record = json.loads((options.trained / "training.json").read_text(encoding="utf-8"))
    state = load_file(options.trained / "model.safetensors")
    model = denoiser_of(state, recorded_sizes(record)).to(options.device)
    low, high = options.blanks
    found = puzzles(options.task, options.count, options.seed, blanks=(low, high))
    ways = {way: WAYS[way] for way in options.ways}
    with torch.no_grad():
        judged = evaluated(model, found, ways)
    judged |= {"task": options.task, "range": [low, high], "seed": options.seed}
    text = json.dumps(judged, indent=1) + "\n"
    folder = options.out or options.trained
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "harder.json").write_text(text, encoding="utf-8")
    for way in ways:
        print(way, judged[way]["accuracy"], judged[way]["by_blanks"], flush=True)


if __name__ == "__main__":
    main()
