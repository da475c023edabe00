"""What the toy measures."""

import numpy as np
import pandas as pd

from flowscope.lab import Subject
from flowscope.records import Unavailable


def prepare(config, given):
    """Return the settings and the coin."""
    facts, none = {"throws": config.rounds * config.throws}, Unavailable("a coin has no weights")
    return config, Subject(source="coin", device="cpu", weight_hash=none, marks={}, facts=facts)


def rounds(bench):
    """Throw the coin, a shard for each round, and write the table ``rounds``."""
    rows = [_round(bench, number) for number in range(1, bench.config.rounds + 1)]
    bench.put("rounds", pd.DataFrame(rows, columns=["round", "share", "low", "high"]))


def _round(bench, number):
    n, rng = bench.config.throws, np.random.default_rng([bench.config.seed, number])
    draws = bench.shard(f"round-{number}", lambda: {"draws": rng.random(n)})["draws"]
    share = (draws < bench.config.heads).mean()
    half = 1.96 * (share * (1 - share) / n) ** 0.5
    return number, share, share - half, share + half
