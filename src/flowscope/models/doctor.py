"""The doctor: what can be measured on this model, what cannot, and why.

Nothing is believed: the model is run bare and under the tap on a small batch, and what is said
about it is what was seen then.
"""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from flowscope.errors import InvalidInputError, UnsupportedModelError
from flowscope.lab.running.modes import evaluation
from flowscope.models.batches import listed_inputs, refuse_failing
from flowscope.models.config import DoctorConfig
from flowscope.models.examination import Examination, Obstacle
from flowscope.models.infilling.sight import sight_of, sight_sentence
from flowscope.models.inputs import sample_inputs
from flowscope.models.loading import Loaded, load
from flowscope.models.reading.cost import audit_estimate
from flowscope.models.reading.repeats import Spread, answer_spread
from flowscope.models.reading.tokens import PLAIN
from flowscope.models.reading.words import fed_words
from flowscope.models.twin import BrokenWeightsError, refuse_broken_weights
from flowscope.records import Unavailable
from flowscope.tap import Anatomy, AttentionCall, Block, BlockPass, Chain, Tail, Tap, WriteKind
from flowscope.tap.probing import refuse_meta
from flowscope.tap.state import State

__all__ = ["doctor", "examined"]

_SPOKEN = ("causal_lm", "masked_lm", "seq2seq", "text_encoder")


def doctor(
    source: str | Path | nn.Module | Loaded,
    *,
    inputs: dict[str, Any] | None = None,
    blocks: str | tuple[str, ...] = (),
    **options: Any,
) -> Examination:
    """What can be measured on a model, found by running it.

    Parameters
    ----------
    source
        Anything `load` takes, or what it returned.
    inputs
        An example batch (keyword arguments of the model); made up when not given.
    blocks
        Names of the depth's modules, as for `Tap`.
    **options
        Passed on to `load`.

    Examples
    --------
    >>> layer = nn.TransformerEncoderLayer(8, 2, batch_first=True)
    >>> found = doctor(nn.TransformerEncoder(layer, 3), inputs={"src": torch.randn(1, 5, 8)})
    >>> found.blocks, found.attention_calls, found.writes
    (3, 3, ())
    """
    loaded = source if isinstance(source, Loaded) else load(source, **options)
    batch = sample_inputs(loaded) if inputs is None else listed_inputs(inputs, loaded.model)[0]
    with torch.no_grad(), evaluation([loaded.model]) as mode:
        try:
            refuse_meta(loaded.model, (), batch)
            refuse_broken_weights(loaded.model)
            refuse_failing(loaded.model, batch)
            state = State(loaded.model)
            expected = _first_tensor(loaded.model(**batch))
            changes = state.changes()
            spread = answer_spread(loaded.model, lambda: loaded.model(**batch))
            visit = _Visit(loaded.model, batch, blocks)
            filling = _filling(loaded, batch)
            estimate = audit_estimate(loaded.model, batch, visit.anatomy, visit.state)
        except (UnsupportedModelError, BrokenWeightsError) as refusal:
            return _refusal(loaded, str(refusal))
    error = float((visit.output.double() - expected.double()).abs().max())
    obstacles = [*_bookkeeping(changes), *_noise(spread)]
    found = _examination(loaded, visit, error, obstacles)
    return replace(
        found,
        mode=mode,
        can=(*found.can, *filling[0]),
        cannot=(*found.cannot, *filling[1]),
        estimate=estimate,
    )


def examined(config: DoctorConfig) -> Examination:
    """The doctor's findings for a resolved configuration; what the command line runs."""
    return doctor(
        config.model,
        blocks=config.blocks,
        device=config.device,
        dtype=_dtype(config.dtype),
        revision=config.revision,
        trust_remote_code=config.trust_remote_code,
        tokenizer=config.tokenizer,
    )


def _dtype(name: str | None) -> torch.dtype | None:
    if name is None:
        return None
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise InvalidInputError(
            f"dtype must be a floating-point type of torch, as float32 or bfloat16; got {name!r}."
        )
    return found


class _Visit:
    """One forward pass under the tap, with the largest deviations seen in it."""

    def __init__(
        self, model: nn.Module, batch: dict[str, Any], blocks: str | tuple[str, ...]
    ) -> None:
        self.row_error = self.write_error = 0.0
        self.attention_calls = 0
        self.state: Tensor | None = None
        with Tap(model, blocks=blocks) as tap:
            tap.on_attention(self._attention)
            tap.on_block(self._block)
            self.output = _first_tensor(model(**batch))
            self.anatomy: Anatomy = tap.anatomy

    def _attention(self, call: AttentionCall) -> None:
        self.attention_calls += 1
        rows = call.probabilities().sum(-1)
        kept = rows[rows > 0]
        deviation = float((kept - 1).abs().max()) if kept.numel() else 0.0
        self.row_error = max(self.row_error, deviation)

    def _block(self, event: BlockPass) -> None:
        self.state = event.hidden_out
        if event.writes:
            total = event.hidden_in.double() + sum(w.tensor.double() for w in event.writes)
            difference = (total - event.hidden_out.double()).abs().max()
            scale = event.hidden_out.double().abs().max().clamp_min(1e-30)
            self.write_error = max(self.write_error, float(difference / scale))


def _filling(loaded: Loaded, batch: dict[str, Any]) -> tuple[tuple[str, ...], tuple[Obstacle, ...]]:
    """Whether a language model sees both ways, so that it can fill masked positions."""
    ids, model = batch.get("input_ids"), loaded.model
    if loaded.kind not in ("causal_lm", "masked_lm") or not isinstance(ids, Tensor):
        return (), ()
    tokens = torch.unique(ids)
    if len(tokens) < 2 or not isinstance(getattr(model(**batch), "logits", None), Tensor):
        return (), ()
    sight = sight_of(lambda rows: model(input_ids=rows).logits, tokens)
    what = "fill masked positions (flowscope decode)"
    if sight.both_ways:
        return (f"{what}: {sight_sentence(sight)}",), ()
    return (), (Obstacle(what=what, because=f"{sight_sentence(sight)}, so that it is causal"),)


def _bookkeeping(changes: tuple[str, ...]) -> list[Obstacle]:
    """What a pass changed on the model itself, in words."""
    if not changes:
        return []
    names = ", ".join(changes[:3]) + (f" and {len(changes) - 3} more" if len(changes) > 3 else "")
    reason = (
        f"a forward pass changes {names}. The probing pass puts buffers and attributes back (not "
        "what lies inside objects of the model); the passes of a measurement change them"
    )
    return [Obstacle(what="passes that leave the model as it was", because=reason)]


def _noise(spread: Spread) -> list[Obstacle]:
    """That the model answers differently twice, in words."""
    if not spread.noisy:
        return []
    return [Obstacle(what="the same numbers twice", because=f"{spread.sentence}: runs refuse it")]


def _examination(
    loaded: Loaded, visit: _Visit, error: float, bookkeeping: list[Obstacle]
) -> Examination:
    anatomy = visit.anatomy
    depth = anatomy.depth
    writes, obstacles = _writes(depth)
    obstacles.extend(bookkeeping)
    how = "in place, bitwise neutral" if error == 0 else f"output changes by at most {error:.2g}"
    can = [
        f"read {visit.attention_calls} attention calls per pass ({how}; rows sum to 1 within "
        f"{visit.row_error:.1g})",
        "replace the output of any attention call, undone on exit",
    ]
    if loaded.kind == "diffusion":
        own = sum(not site.cross for site in anatomy.attentions)
        can.append(f"couple two generations in {own} self-attention calls (flowscope.couple)")
    if isinstance(depth, Chain):
        streams = " and ".join(depth.streams)
        can.append(f"follow {streams} through {len(depth)} blocks of {depth.name}")
    else:
        obstacles.insert(0, Obstacle(what="depth", because=depth.reason))
    if writes:
        kinds = " + ".join(writes)
        can.append(
            f"split each block into its writes: {kinds} (relative error {visit.write_error:.1g})"
        )
    if isinstance(anatomy.tail, Unavailable):
        obstacles.append(Obstacle(what="output at every layer", because=anatomy.tail.reason))
    elif anatomy.tail.positionwise:
        can.append(
            f"read {anatomy.tail.target} ({anatomy.tail.width} wide) at every layer and position"
        )
    else:
        can.append(f"read {anatomy.tail.target} ({anatomy.tail.width} wide) at every layer")
        reason = "what follows the last block pools or reshapes positions"
        obstacles.append(Obstacle(what="output at every position", because=reason))
    if isinstance(anatomy.tail, Tail) and anatomy.tail.target != "logits":
        reason = f"the model has no output over outcomes: its output is {anatomy.tail.target}"
        obstacles.append(Obstacle(what="probabilities along depth", because=reason))
    if anatomy.listening == "mode":
        can[0] += "; every torch function of a pass is looked at, which slows a pass down"
    if anatomy.seam == "interface":
        reason = "its attention backend hides attention and is replaced during a measurement"
        obstacles.append(Obstacle(what="reading without touching the backend", because=reason))
    return Examination(
        model=loaded.source,
        kind=loaded.kind,
        blocks=len(depth) if isinstance(depth, Chain) else 0,
        attention_calls=visit.attention_calls,
        writes=writes,
        tail=anatomy.tail,
        can=tuple(can),
        cannot=tuple(obstacles),
        chains=anatomy.chains,
        seam=anatomy.seam,
        listening=anatomy.listening,
        reading_error=error,
        refused=False,
        fed=fed_words(loaded, PLAIN) if loaded.kind in _SPOKEN else "",
        unwrapped=loaded.wrappers,
    )


def _writes(depth: Chain | Unavailable) -> tuple[tuple[WriteKind, ...], list[Obstacle]]:
    """The pattern most blocks share on the main stream, and the blocks whose writes are hidden."""
    if isinstance(depth, Unavailable):
        return (), [Obstacle(what="writes", because="there is no depth")]
    if not depth.streams:
        return (), [Obstacle(what="writes", because="no stream of constant shape passes through")]
    main = depth.streams[0]

    def hidden(block: Block) -> bool:
        return isinstance(block.writes.get(main), Unavailable)

    patterns = [
        block.writes[main] for block in depth.blocks if main in block.writes and not hidden(block)
    ]
    counted = Counter(p for p in patterns if not isinstance(p, Unavailable))
    silent = [block for block in depth.blocks if hidden(block)]
    obstacles = []
    if silent:
        reason = silent[0].writes[main]
        assert isinstance(reason, Unavailable)
        what = "writes" if not counted else f"writes of {len(silent)} of {len(depth)} blocks"
        obstacles.append(Obstacle(what=what, because=reason.reason))
    return (counted.most_common(1)[0][0] if counted else ()), obstacles


def _refusal(loaded: Loaded, reason: str) -> Examination:
    nothing = Unavailable("the model is refused")
    return Examination(
        model=loaded.source,
        kind=loaded.kind,
        blocks=0,
        attention_calls=0,
        writes=(),
        tail=nothing,
        can=(),
        cannot=(Obstacle(what="anything", because=reason),),
        chains=(),
        seam=nothing,
        reading_error=nothing,
        refused=True,
    )


def _first_tensor(output: Any) -> Tensor:
    """The main output of a model, whatever it is wrapped in."""
    if isinstance(output, Tensor):
        return output
    values = output.values() if isinstance(output, dict) else output
    return next(_first_tensor(value) for value in values if value is not None)
