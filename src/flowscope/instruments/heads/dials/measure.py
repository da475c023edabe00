"""Change parts of the logits of the running model and measure the loss."""

from __future__ import annotations

from flowscope.instruments.heads.config import HeadsConfig
from flowscope.instruments.heads.dials.turning import Dial, dial_table
from flowscope.instruments.heads.resampling import control_size, prompt_counts
from flowscope.instruments.heads.subject import HeadsBench
from flowscope.lab.claim import Abstention
from flowscope.records import Unavailable

__all__ = ["turned_dials"]


def turned_dials(bench: HeadsBench) -> None:
    """Change parts of the logits of the running model and measure the loss."""
    config, prompts = bench.config, bench.subject.material.prompts
    if not config.dials:
        return
    if isinstance(prompts, Unavailable):
        raise Abstention(prompts.reason)
    few, dials = prompts.first(control_size(bench)), _dials(config)
    bench.list_pass("dials", len(few))
    counter = bench.counter("dials", len(few) * (1 + (1 + config.draws) * len(dials)))
    table = dial_table(
        bench.subject.loaded,
        few,
        dials,
        prompt_counts(bench, control_size(bench)),
        batch=config.batch,
        layers=[layer - 1 for layer in config.dial_layers] or None,
        heads=list(config.dial_heads) or None,
        share=config.masked_share,
        seed=config.seed,
        draws=config.draws,
        advance=counter.advance,
    )
    if isinstance(table, Unavailable):
        raise Abstention(table.reason)
    bench.put("dials", table)


def _dials(config: HeadsConfig) -> list[Dial]:
    named = {
        "metric": config.metric,
        "exact": config.exact,
        "flux": config.flux,
        "alpha": config.alpha,
        "temperature": config.temperatures,
        "square": config.squares,
    }
    return [Dial(kind=kind, value=value) for kind, values in named.items() for value in values]  # type: ignore[arg-type]
