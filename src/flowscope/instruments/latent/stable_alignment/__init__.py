"""``flowscope reproduce stable_alignment``: source 003 on a model, its children and its twin."""

from flowscope.instruments.latent.config import LatentConfig
from flowscope.instruments.latent.stable_alignment import comparison, members
from flowscope.lab.claim import CLAIMS_TABLE
from flowscope.lab.config import MOST_INPUTS, Config, setting
from flowscope.lab.study import Study

__all__ = ["STUDY", "StableAlignment"]

_STAGES = (members.STAGE, comparison.STAGE)


class StableAlignment(Config):
    """Settings of the study of the latent cloud and of models in consensus.

    Two children of the model are tuned, each on texts of its own; a twin with turned states is made
    from the model. The group ``latent`` reads the cloud of the model itself.
    """

    study: str = setting("stable_alignment", "Name of the study")
    title: str = setting("", "What the study asks, for its table of claims")
    latent: LatentConfig = setting(LatentConfig.model_validate({}), "Settings of the cloud")
    first: str | None = setting(
        None, "Text on which the first child is tuned", unset="generated accounts"
    )
    second: str | None = setting(
        None, "Text on which the second child is tuned", unset="generated lineages"
    )
    other: str | None = setting(
        None, "A model of another seed: a folder, a hub id or a .gguf file", unset="none"
    )
    examples: int = setting(120, "Texts of each kind to tune on, at most", ge=1, le=MOST_INPUTS)
    tested: int = setting(24, "Texts of each kind to measure on, at most", ge=1, le=MOST_INPUTS)
    steps: int = setting(30, "Steps of tuning", ge=1, le=1_000_000)
    minibatch: int = setting(8, "Texts of a step of tuning", ge=1, le=MOST_INPUTS)
    learning_rate: float = setting(5e-4, "Largest learning rate of tuning", gt=0, le=1)
    strengths: tuple[float, ...] = setting((0.5, 1.0), "Strengths λ of the consensus", min_length=1)
    transported: int = setting(
        6, "Texts of each kind on which clouds are transported; 0 leaves that out", ge=0
    )


STUDY = Study(
    name="stable_alignment",
    home=__name__,
    source="003",
    config=StableAlignment,
    reading="latent",
    settings="study.yaml",
    statements="statements.alignment_statements",
    stages=_STAGES,
    tables={
        "stable_alignment": CLAIMS_TABLE,
        **{name: table for stage in _STAGES for name, table in stage.tables.items()},
    },
)
