"""Draw ``training_curve.png`` from ``training_curve.csv``.

python -m studies.training.figure FOLDER [--out FILE]
"""

import argparse
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.ticker import NullFormatter

__all__ = ["draw"]

INK, SECOND = "#1f4e79", "#c55a11"


def draw(curve: pd.DataFrame, path: Path) -> None:
    """Four panels over the number of steps: loss, variation, mobility, locking depth."""
    # Step 0 has no place on a log axis; it stands half a unit left of step 1.
    step = curve["step"].where(curve["step"] > 0, 0.5)
    figure, axes = plt.subplots(2, 2, figsize=(8, 5.2), sharex=True, layout="constrained")
    (loss, variation), (mobility, locking) = axes
    loss.plot(step, curve["heldout_loss"], "o-", color=INK, ms=3)
    loss.set_ylabel("held-out loss (nats per token)")
    variation.plot(step, curve["variation"], "o-", color=INK, ms=3)
    variation.set_ylabel(r"normalised variation $\bar S_L$")
    mobility.plot(step, curve["mobility_last"], "o-", color=INK, ms=3, label="last layer")
    mobility.plot(step, curve["mobility_mean"], "s--", color=SECOND, ms=3, label="mean over layers")
    mobility.set_ylabel(r"mobility $\|J\|_F$")
    mobility.legend(frameon=False)
    locking.plot(step, curve["locking_depth"], "o-", color=INK, ms=3)
    locking.set_ylabel("locking depth (layer)")
    for axis in axes.flat:
        axis.set_xscale("log")
        axis.set_ylim(0, 1.08 * max(line.get_ydata().max() for line in axis.lines))
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[1]:
        axis.set_xlabel("training step (leftmost point: step 0)")
    figure.suptitle("The depth path while the model learns (medians over held-out tokens)")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    """Draw the figure of a training folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    curve = pd.read_csv(options.folder / "training_curve.csv")
    draw(curve, options.out or options.folder / "training_curve.png")


if __name__ == "__main__":
    main()
