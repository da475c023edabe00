"""``flowscope heads``: the Markov geometry of every attention head."""

from flowscope.instruments.heads.claims import DIRECTED, TRAINED
from flowscope.instruments.heads.config import HeadsConfig
from flowscope.lab.claim import Table
from flowscope.lab.instrument import Argument, Instrument, Stage

__all__ = ["INSTRUMENT"]

_CHAIN = ("batch", "chain", "damping")

# In the order of the file; the keys, which name a row, are beside each table.
_COLUMNS = {
    "geometry": (
        "chain", "entropy_production", "entropy_production_low", "entropy_production_high",
        "entropy_production_random", "displacement", "displacement_low", "displacement_high",
        "displacement_random", "gap", "gap_low", "gap_high", "gap_random", "effective_keys",
        "effective_keys_low", "effective_keys_high", "effective_keys_random", "top_token",
        "top_token_low", "top_token_high", "top_token_random", "survival", "survival_low",
        "survival_high", "survival_random", "flux_ratio", "flux_ratio_low", "flux_ratio_high",
        "flux_ratio_random", "exact_share", "exact_share_low", "exact_share_high",
        "exact_share_random", "negative_share", "negative_share_low", "negative_share_high",
        "negative_share_random", "entropy_production_permuted", "steps", "label", "steps_to_tell",
        "because", "status", "weight_ratio", "weight_because",
    ),
    "references": ("prompts", "because"),
    "sentence": ("token",),
    "dials": (
        "layers", "heads", "loss", "perplexity", "change", "change_low", "change_high",
        "random_change", "random_change_low", "random_change_high", "excess", "excess_low",
        "excess_high", "norm", "total_variation", "random_norm", "random_total_variation",
        "tokens", "prompts", "because",
    ),
}  # fmt: skip

INSTRUMENT = Instrument(
    name="heads",
    home=__name__,
    config=HeadsConfig,
    prepare="subject.prepare",
    result="result.Heads",
    page="page.PAGE",
    headline="headline.show",
    main_table="geometry",
    arrays=("portrait",),
    identity=_CHAIN,
    studies=("diffusion_attention.STUDY",),
    arguments=(
        Argument(
            name="source",
            help="A folder, a hub id, a .gguf file, a model in memory or what `load` returned; the "
            "bundled language model when nothing is given.",
            positional=True,
            setting="model",
        ),
        Argument(
            name="texts",
            help="Prompts, or images for a vision model; the packaged ones when nothing is given. "
            "A model that reads neither is read on noise of the right shape, and the run says so.",
            annotation="Sequence[str] | Tensor | None",
            positional=True,
        ),
        Argument(
            name="inputs",
            help="Keyword arguments of the forward pass instead, one mapping per batch.",
            annotation="Sequence[Mapping[str, Any]] | None",
        ),
        Argument(name="tokenizer", help="Replaces the tokenizer that comes with the weights."),
    ),
    stages=(
        Stage(
            name="heads",
            home=__name__,
            measure="measuring.geometry",
            judge="judge.irreversibility",
            claims=(TRAINED, DIRECTED),
            settings=_CHAIN,
            tables={
                "references": Table(
                    purpose="what the heads are compared with, and on how many prompts",
                    keys=("reference",),
                    columns=_COLUMNS["references"],
                    optional=True,
                ),
                "geometry": Table(
                    purpose="how irreversible each head is",
                    keys=("layer", "head"),
                    columns=_COLUMNS["geometry"],
                ),
            },
        ),
        Stage(
            name="portrait",
            home=__name__,
            measure="measuring.sentence_portrait",
            tables={
                "sentence": Table(
                    purpose="the tokens of the sentence that the heads are shown on",
                    keys=("position",),
                    columns=_COLUMNS["sentence"],
                )
            },
        ),
        Stage(
            name="dials",
            home=__name__,
            measure="measuring.turned_dials",
            tables={
                "dials": Table(
                    purpose="the loss with one part of the scores turned up or down",
                    keys=("dial", "setting"),
                    columns=_COLUMNS["dials"],
                )
            },
        ),
    ),
)
