"""``flowscope reproduce diffusion_attention``: source 002 on a model."""

from flowscope.instruments.heads.config import HeadsConfig
from flowscope.instruments.heads.diffusion_attention import schemas
from flowscope.lab.config import Config, setting
from flowscope.lab.instrument import Stage
from flowscope.lab.study import Study

__all__ = ["STUDY", "DiffusionAttention"]


class DiffusionAttention(Config):
    """Settings of the study of heads as Markov chains.

    The identities are checked in float64 on the logits of every head.
    """

    study: str = setting("diffusion_attention", "Name of the study")
    title: str = setting("", "What the study asks, for its table of claims")
    heads: HeadsConfig = setting(HeadsConfig.model_validate({}), "Settings of the heads")
    identity_prompts: int = setting(4, "Prompts on which the identities are checked", ge=1)
    identity_tokens: int = setting(32, "Tokens of each of these prompts", ge=3)
    sweeps: int = setting(50, "Normalisations of the bistochastic kernels", ge=1)
    charge: float = setting(0.05, "Magnetic charge per unit of the logits", allow_inf_nan=False)


STUDY = Study(
    name="diffusion_attention",
    home=__name__,
    source="002",
    config=DiffusionAttention,
    reading="heads",
    settings="study.yaml",
    statements="statements.regime_statement_table",
    stages=(Stage(name="identities", home=__name__, measure="measure.identities"),),
    tables=schemas.TABLES,
)
