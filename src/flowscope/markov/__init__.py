"""The Markov geometry of query–key scores: divergences, kernels, chains, maps (source 002)."""

__all__: list[str] = []
