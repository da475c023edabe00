"""Couplings: the Sinkhorn family, distances, barycenters, bridges (sources 000 and 003)."""

__all__: list[str] = []
