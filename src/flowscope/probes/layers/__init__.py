"""Probes of states from layer to layer: depth paths, their variation, their forecasts."""

__all__ = ()
