"""Columns that tables of several diagnostics have."""

from flowscope.lab.claim import Column

__all__ = ["IMAGES", "LOG_SNR", "NULL", "SAMPLER", "STEP", "TIME"]


SAMPLER = Column("sampler", "ode (probability flow) or sde")


STEP = Column("step", "reverse steps that were taken")


TIME = Column("time", "time of the model's schedule")


LOG_SNR = Column("log_snr", "logarithm of the signal-to-noise ratio at that time", "nat")


IMAGES = Column("images", "number of images")


NULL = {
    "{}_null": "median of `{}` between two runs of the SDE",
    "{}_null_high": "95 % quantile of `{}` between two runs of the SDE",
}
