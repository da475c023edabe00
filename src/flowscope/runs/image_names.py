"""Names that measuring, judging and showing the image track share."""

__all__ = ["DECIDING", "PREDICTION"]

DECIDING = "square"
"""The observable whose slope is judged."""

PREDICTION = "output and noise at the last time"
"""Name of the measurement that tells a predictor of noise from others."""
