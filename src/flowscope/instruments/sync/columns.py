"""Columns that tables of several diagnostics have."""

from flowscope.lab.claim import Column

__all__ = [
    "BECAUSE",
    "CLASS",
    "CONTROL",
    "LABEL",
    "LAYER",
    "MEASURE",
    "PAIRS",
    "STATUS",
    "STEP",
    "G",
]


LABEL = Column("label", "number of the class")


CLASS = Column("class", "name of the class")


G = Column("g", "coupling of the replicas, from 0 (none) to 1")


CONTROL = Column("control", "whether the replicas share their noise and are not coupled")


MEASURE = Column("measure", "what is compared: feature, coarse or fine")


LAYER = Column("layer", "layer, from 1")


STEP = Column("step", "reverse step, from 0 (noise)")


PAIRS = Column("n", "number of pairs of replicas")


STATUS = Column("status", "ok; no transition or abstained where there is no number")


BECAUSE = Column("because", "why there is no number; empty where there is one")
