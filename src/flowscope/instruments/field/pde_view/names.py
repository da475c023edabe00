"""Names of the tasks, the arms and the paths of the study, and the arms that differ in one thing.

An arm is a network; its settings are data. The transformers are `pde.AblatedTransformer`, the
others `pde.MasterEquation`, whose two branches run side by side in steps of one sixth (for six
blocks). Steps of that length scale gradients too, so that an arm is only compared with one that
differs from it in nothing else.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["ARMS", "PAIRS", "SIMULATOR", "TASKS", "TRANSFORMER", "Arm", "Pair"]

TRANSFORMER, SIMULATOR = "transformer", "simulator"

TASKS = {
    "listops": "ListOps",
    "topics": "topics of generated texts",
    "mnist": "MNIST pixels",
    "texts": "topics of given texts",
}
"""Tasks by name, in words."""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """A network of the study.

    Attributes
    ----------
    label
        Its name in words.
    master
        Whether it is a master equation; else it is a transformer.
    settings
        What it is made with, beside its size.
    """

    label: str
    master: bool
    settings: Mapping[str, Any]


ARMS = {
    TRANSFORMER: Arm(label="transformer", master=False, settings={}),
    "no_residual": Arm(label="no residual", master=False, settings={"residual": False}),
    "no_norm": Arm(label="no norm", master=False, settings={"norm": "none"}),
    "neither": Arm(label="neither", master=False, settings={"residual": False, "norm": "none"}),
    "leak_2_norm": Arm(label="leak 2, norm", master=True, settings={"leak": 2}),
    SIMULATOR: Arm(
        label="simulator of 001",
        master=True,
        settings={"leak": 2, "norm": "none", "stabiliser": "published"},
    ),
    "leak_0": Arm(label="leak 0", master=True, settings={"norm": "none"}),
    "leak_0_norm": Arm(label="leak 0, norm", master=True, settings={}),
    "leak_0_norm_shared": Arm(label="leak 0, norm, shared", master=True, settings={"shared": True}),
}
"""Arms by name."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two arms that differ in one thing.

    Attributes
    ----------
    what
        The thing.
    having, lacking
        The arm that has it, and the arm that lacks it.
    """

    what: str
    having: str
    lacking: str


PAIRS = (
    Pair(what="norm", having=TRANSFORMER, lacking="no_norm"),
    Pair(what="norm", having="leak_0_norm", lacking="leak_0"),
    Pair(what="norm", having="no_residual", lacking="neither"),
    Pair(what="residual", having=TRANSFORMER, lacking="no_residual"),
    Pair(what="residual", having="no_norm", lacking="neither"),
    Pair(what="leak", having="leak_2_norm", lacking="leak_0_norm"),
    Pair(what="shared weights", having="leak_0_norm_shared", lacking="leak_0_norm"),
)
"""Pairs of arms that differ in one thing."""
