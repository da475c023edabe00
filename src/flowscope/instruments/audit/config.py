"""Settings of the depth audit."""

from typing import Literal

from pydantic import NonNegativeFloat, PositiveFloat

from flowscope.lab.config import ReadingConfig, setting

__all__ = ["AuditConfig"]


class AuditConfig(ReadingConfig):
    """Show layer by layer how a model reaches its output: where it decides, which layers matter.

    Writes a run folder with tables, the verdicts Smoothness, Forecast, Locking, Contraction,
    Transport and Rotation, and report.html. To resume an interrupted run, start it again.
    """

    threshold: float = setting(
        0.15, "Relative variation up to which P0 lets a segment of layers be read as a flow", gt=0
    )
    readout: Literal["exact", "model"] = setting(
        "exact",
        "Output of half-precision models from the exact state, or as the model rounds it (faster)",
    )
    locking_tokens: int = setting(
        24, "Tokens per prompt that P2 compares with each other; 0 leaves P2 out", ge=0
    )
    curvature_pairs: int = setting(
        4, "Pairs of attention rows per prompt for P3; 0 leaves P3 out", ge=0
    )
    temperatures: tuple[PositiveFloat, ...] = setting(
        (0.5, 0.71, 1.41, 2.0),
        "Factors on the temperature of attention that P3 sweeps besides 1; empty for no sweep",
    )
    key_norms: tuple[NonNegativeFloat, ...] = setting(
        (0.0, 0.5, 1.5, 2.0),
        "Factors on the norm of the keys that P3 sweeps besides 1; empty for no sweep",
    )
    evi_positions: int = setting(
        4, "Tokens per prompt at which the EVI is checked along the output path; 0 for none", ge=0
    )
    evi_top: int = setting(8, "Outcomes of each layer that the check of the EVI includes", ge=2)
    flow_positions: int = setting(
        32,
        "Tokens per prompt whose paths P1 and P4 use, fewer if prompts are many; 0 leaves both out",
        ge=0,
    )
    flow_close: int = setting(
        12, "Tokens per prompt compared as whole distributions in P1, at most 384 in all", ge=1
    )
    flow_rank: int = setting(64, "Principal coordinates of the logits for fitting drifts", ge=2)
    drift_features: Literal["plain", "rich"] = setting(
        "plain", "Features of a drift (rich adds products of coordinates)"
    )
    rotation_rank: int = setting(8, "Principal coordinates in which P4 measures rotation", ge=2)
    rotation_layers: int = setting(10, "Central layers in which P4 measures rotation", ge=1)
