"""CAPTURE: read and steer any torch model through events, without an adapter per architecture."""

from flowscope.tap.anatomy import Anatomy, AttentionSite, Block, Chain
from flowscope.tap.events import AttentionCall, BlockPass, Site, Write, WriteKind
from flowscope.tap.probing import probe
from flowscope.tap.tail import LinearOutput, Operands, Tail
from flowscope.tap.tap import Tap

__all__ = [
    "Anatomy",
    "AttentionCall",
    "AttentionSite",
    "Block",
    "BlockPass",
    "Chain",
    "LinearOutput",
    "Operands",
    "Site",
    "Tail",
    "Tap",
    "Write",
    "WriteKind",
    "probe",
]
