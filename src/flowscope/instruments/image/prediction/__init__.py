"""Whether the model predicts what its schedule says."""

from flowscope.lab.instrument import Stage

__all__ = ["PREDICTION", "STAGE"]


PREDICTION = "output and noise at the last time"
"""Measurement that tells a predictor of noise from others."""


STAGE = Stage(name="prediction", home=__name__, measure="measure.prediction")
