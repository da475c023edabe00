"""Attention of the model beside attention of particles on a sphere."""

from flowscope.lab.claim import INTERVAL, Claim, Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["PARTICLES", "STAGE", "TABLES"]

PARTICLES = Claim(
    name="L3",
    title="Particles",
    says="attention moves tokens as the particle model says",
    asks="Do tokens move towards the tokens they attend to, as unit vectors with the identity as "
    "value matrix do, more than towards other tokens?",
)


def _quantity(name: str, meaning: str, unit: str = "") -> Column:
    return Column(name, meaning, unit, INTERVAL)


TABLES = {
    "clustering": Table(
        purpose="attention of each block fitted by particles on a sphere, and what it does to "
        "the likeness of tokens",
        keys=("layer",),
        columns=(
            Column("layer", "block, from 1"),
            _quantity("beta", "fitted inverse temperature: slope of attention logits on cosines"),
            Column("beta_twin", "the same in networks with random weights, mean over them"),
            _quantity("beta_r2", "share of the logits within a row that cosines explain"),
            Column("beta_r2_twin", "the same in networks with random weights"),
            _quantity("value", "fitted v: transport write = v Σ P (x_j − x_i), over lengths"),
            Column("value_twin", "the same in networks with random weights"),
            _quantity("value_r2", "share of the squared transport write that this explains"),
            Column("value_r2_twin", "the same in networks with random weights"),
            _quantity("value_r2_permuted", "the same with tokens dealt anew to the weights"),
            _quantity("cosine_change", "change of the mean cosine of pairs of tokens in the block"),
            _quantity("cosine_attention", "change by the write of attention alone"),
            _quantity("cosine_feed_forward", "change by the feed-forward write after it"),
            _quantity("cosine_predicted", "change that the fitted particles predict"),
            Column("noise", "damping rate of degree 1: what particles do not explain, over v"),
            Column("degree", "clusters that form first in the dimension of the cloud, at beta"),
            Column("write", "transport: the part of the write from tokens; whole: all of it"),
        ),
        optional=True,
    ),
    "phases": Table(
        purpose="where noisy particles on the sphere cluster",
        keys=("beta", "noise"),
        columns=(
            Column("beta", "inverse temperature"),
            Column("noise", "damping rate of degree 1"),
            Column("growth", "growth rate of degree 1 without noise"),
            Column("order", "length of the mean vector late in time: 0 spread, 1 one point"),
            Column("clusters", "clusters at the end, by the gap statistic"),
        ),
        optional=True,
    ),
}
"""Tables of the particles."""

STAGE = Stage(
    name="particles",
    home=__name__,
    measure="measure.particles",
    judge="judge.particles",
    claims=(PARTICLES,),
    settings=("batch", "seed"),
    tables=TABLES,
    uses=("entropy",),
)
