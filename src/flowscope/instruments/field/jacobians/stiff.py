"""From which gain on a block is called stiff."""

__all__ = ["STIFF"]

STIFF = 10.0
"""Gain: a change of the tokens by a hundredth of their length changes the write by a tenth."""
