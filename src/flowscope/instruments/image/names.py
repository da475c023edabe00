"""Names that measuring, judging and showing share."""

__all__ = ["DECIDING", "PREDICTION"]

DECIDING = "square"
"""The observable whose slope is judged."""

PREDICTION = "output and noise at the last time"
"""Measurement that tells a predictor of noise from others."""
