"""``flowscope reproduce pde_view``: source 001 on networks that the study trains itself."""

from typing import Literal

from flowscope.instruments.field.config import FieldConfig
from flowscope.instruments.field.pde_view import alignment, depth, rates, refinement, training
from flowscope.lab.claim import CLAIMS_TABLE
from flowscope.lab.config import MOST_INPUTS, Config, setting
from flowscope.lab.study import Study

__all__ = ["STUDY", "PdeView"]

Task = Literal["listops", "topics", "mnist", "texts"]
Arm = Literal[
    "transformer", "no_residual", "no_norm", "neither", "leak_2_norm", "simulator", "leak_0",
    "leak_0_norm", "leak_0_norm_shared",
]  # fmt: skip
Student = Literal["leak_2_norm", "simulator", "leak_0", "leak_0_norm", "leak_0_norm_shared"]
_STAGES = (training.STAGE, rates.STAGE, depth.STAGE, alignment.STAGE, refinement.STAGE)
_MOST_STEPS = 10_000_000


class PdeView(Config):
    """Settings of the study of transformers beside a partial differential equation.

    Of the group ``field`` the study takes tokens, prompts, text, resamples, seed, out and device.
    """

    study: str = setting("pde_view", "Name of the study")
    title: str = setting("", "What the study asks, for its table of claims")
    field: FieldConfig = setting(FieldConfig.model_validate({}), "Lengths, seed, folder, device")
    tasks: tuple[Task, ...] = setting(("listops", "topics"), "Tasks", min_length=1)
    arms: tuple[Arm, ...] = setting(
        ("transformer", "no_residual", "no_norm", "neither", "simulator"),
        "Networks, the transformer among them",
        min_length=1,
    )
    seeds: tuple[int, ...] = setting((0,), "Seeds of the networks", min_length=1)
    rivals: bool = setting(
        True, "Whether, with one seed, networks of another one are trained for comparison"
    )
    mnist: str | None = setting(
        None, "Folder of the four idx files of MNIST", unset="none; the task mnist needs it"
    )
    width: int = setting(64, "Features of a token", ge=1, le=4096)
    heads: int = setting(4, "Heads of attention, which must divide the width", ge=1)
    blocks: int = setting(6, "Blocks, or Euler steps", ge=2, le=256)
    gamma: float = setting(0.1, "γ of the published stabiliser; 001 gives none", ge=0)
    diffusion: float = setting(0.1, "Coefficient of D in the simulator; 001 gives none", ge=0)
    examples: int = setting(4000, "Examples that are trained on, at most", ge=2, le=MOST_INPUTS)
    tested: int = setting(512, "Examples behind an accuracy", ge=2, le=MOST_INPUTS)
    side: int = setting(14, "Pixels of a side of an image; one token each", ge=2, le=28)
    steps: int = setting(300, "Steps of training", ge=10, le=_MOST_STEPS)
    minibatch: int = setting(16, "Examples of a step of training", ge=1, le=MOST_INPUTS)
    learning_rate: float = setting(1e-3, "Largest learning rate of training", gt=0)
    graphs: bool = setting(True, "Whether a GPU replays a recorded step of training")
    students: tuple[Student, ...] = setting(
        ("simulator",), "Arms that are distilled from the transformer"
    )
    distillation_steps: int = setting(300, "Steps of a distillation", ge=10, le=_MOST_STEPS)
    rate_steps: int = setting(
        100, "Steps of a run behind the largest learning rate; 0 leaves it out", ge=0
    )
    informed: int = setting(128, "Test examples in which a probe reads the input token", ge=8)
    places: int = setting(12, "Tokens of each of them whose input is read", ge=1)
    labelled: int | None = setting(
        None, "Test examples whose class a probe reads", ge=8, unset="all that are tested"
    )


STUDY = Study(
    name="pde_view",
    home=__name__,
    source="001",
    config=PdeView,
    reading="field",
    settings="study.yaml",
    statements="statements.pde_statement_table",
    prepare="subject.prepare",
    stages=_STAGES,
    tables={
        "pde_view": CLAIMS_TABLE,
        **{name: table for stage in _STAGES for name, table in stage.tables.items()},
    },
)
