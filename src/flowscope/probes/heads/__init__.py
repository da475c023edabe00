"""Probes of attention heads: entropy, Markov chains, geometry, curvature, identities."""

__all__ = ()
