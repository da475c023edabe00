"""From a trace to an anatomy: which module calls are the blocks, what they write, what follows.

The rules, in the order they are applied, with the reason for each:

* Two sibling calls are *linked* when an output of the first is an input of the second through an
  argument that the first also took, with the same width. A decoder reading its encoder's output is
  not linked to it: the encoder took no such argument.
* A chain is a longest run of linked siblings, trimmed to the calls that contain attention; it needs
  two calls of one class. The search goes from the outside in and does not look inside a chain.
* When nothing repeats (a model of one layer), a single call of a module that sits in a list is a
  chain of one.
* The last chain is the depth, unless there are more than two and it holds less than a quarter of
  the attention: then the model is a pyramid or a U-Net and has no depth to speak of.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from torch import nn

from flowscope.errors import TapError, UnsupportedModelError
from flowscope.records import Unavailable
from flowscope.tap.anatomy import Anatomy, AttentionSite, Block, Chain
from flowscope.tap.dispatch import MULTI_HEAD
from flowscope.tap.events import Site
from flowscope.tap.residual import Followed
from flowscope.tap.tail import Tail, tail_of
from flowscope.tap.trace import Attention, ModuleCall, Trace

__all__ = ["anatomy_of"]

Calls = list[ModuleCall]


def anatomy_of(trace: Trace, *, blocks: Sequence[str] = (), seam: str = "sdpa") -> Anatomy:
    """The anatomy of the model whose forward pass was traced.

    Parameters
    ----------
    trace
        One forward pass.
    blocks
        Module paths of the depth, when the user names them; found otherwise.
    seam
        Through which function attention was seen.

    Raises
    ------
    UnsupportedModelError
        When no attention call was seen, or a block has none.
    """
    if not trace.attentions:
        raise UnsupportedModelError(_blindness(trace))
    runs = [_named(trace, blocks)] if blocks else _chains(trace.root)
    runs = runs or _single(trace.root)
    chains = tuple(_chain(trace, run) for run in runs)
    depth = _depth(chains, len(trace.attentions))
    inside = {id(a) for run in runs for call in run for a in _within(trace, call)}
    rest = [a for a in trace.attentions if id(a) not in inside]
    outside = tuple(_outside(i, a) for i, a in enumerate(rest))
    sites = {id(a): site for a, site in zip(rest, outside, strict=True)}
    for run, chain in zip(runs, chains, strict=True):
        for call, block in zip(run, chain.blocks, strict=True):
            sites.update(zip(map(id, _within(trace, call)), block.attentions, strict=True))
    tail: Tail | Unavailable = Unavailable("there is no depth to be the tail of")
    if isinstance(depth, Chain):
        tail = _tail(trace, runs[chains.index(depth)][-1], depth)
    return Anatomy(
        chains=chains,
        depth=depth,
        outside=outside,
        tail=tail,
        seam=seam,
        order=tuple(sites[id(a)] for a in trace.attentions),
        listening="interface" if seam == "interface" else "mode",
    )


def _chains(call: ModuleCall) -> list[Calls]:
    found: list[Calls] = []
    covered: set[int] = set()
    for run in _runs(call.children):
        kept = _trimmed(run)
        classes = [type(c.module) for c in kept]
        if len(kept) < 2 or len(set(classes)) == len(classes):
            continue
        _refuse_gaps(kept)
        found.append(kept)
        covered.update(id(c) for c in kept)
    for child in call.children:
        if child.attentions and id(child) not in covered:
            found.extend(_chains(child))
    return sorted(found, key=lambda run: run[0].ops.start)


def _runs(siblings: Calls) -> list[Calls]:
    """Longest runs of linked siblings, in call order."""
    makers = {p.value: c for c in siblings for p in c.outputs.values()}
    runs: dict[int, Calls] = {}
    ends: dict[int, Calls] = {}
    for call in siblings:
        feeders = {id(m): m for p in call.inputs.values() if (m := makers.get(p.value)) is not None}
        linked = [m for m in feeders.values() if m is not call and _streams(m, call)]
        run = next((ends[id(m)] for m in linked if id(m) in ends), None)
        if run is None:
            run = runs[id(call)] = []
        else:
            del ends[id(run[-1])]
        run.append(call)
        ends[id(call)] = run
    return list(runs.values())


def _streams(first: ModuleCall, second: ModuleCall) -> dict[str, int]:
    """Arguments through which ``first`` feeds ``second``, with their place in its output."""
    places = {port.value: place for place, port in first.outputs.items()}
    return {
        slot: places[port.value]
        for slot, port in second.inputs.items()
        if port.value in places
        and port.floating
        and (own := first.inputs.get(slot)) is not None
        and own.shape[-1:] == port.shape[-1:]
        and len(own.shape) == len(port.shape)
    }


def _trimmed(run: Calls) -> Calls:
    attending = [i for i, call in enumerate(run) if call.attentions]
    return run[attending[0] : attending[-1] + 1] if attending else []


def _refuse_gaps(run: Calls) -> None:
    silent = [call.path for call in run if not call.attentions]
    if silent:
        raise UnsupportedModelError(
            f"{len(silent)} of {len(run)} blocks made no attention call that could be seen "
            f"(the first: {silent[0]}). Either they are no attention blocks (a state-space or "
            "convolution hybrid, which flowscope does not read) or they compute softmax by hand."
        )


def _single(root: ModuleCall) -> list[Calls]:
    """The outermost attending calls of modules that sit in a list, when there is just one."""
    lists = (nn.ModuleList, nn.Sequential, nn.ModuleDict)
    modules = [m for m in root.module.modules() if isinstance(m, lists)]
    members = {id(child) for m in modules for child in m.children()}

    def found(call: ModuleCall) -> Iterable[ModuleCall]:
        for child in (c for c in call.children if c.attentions):
            yield from [child] if id(child.module) in members else found(child)

    calls = list(found(root))
    return [calls] if len(calls) == 1 else []


def _named(trace: Trace, blocks: Sequence[str]) -> Calls:
    def all_calls(call: ModuleCall) -> Iterable[ModuleCall]:
        for child in call.children:
            yield child
            yield from all_calls(child)

    calls = [c for c in all_calls(trace.root) if c.path in set(blocks)]
    missing = sorted(set(blocks) - {c.path for c in calls})
    if missing:
        raise TapError(
            f"blocks={list(blocks)!r} names {missing[0]!r}, which the model did not call. "
            "Give qualified module names as in model.named_modules()."
        )
    _refuse_gaps(calls)
    return calls


def _chain(trace: Trace, run: Calls) -> Chain:
    if len(run) > 1:
        links = [_streams(a, b) for a, b in pairwise(run)]
        order = list(run[1].inputs)
        streams = sorted(set.intersection(*(set(link) for link in links)), key=order.index)
        places = [{s: link[s] for s in streams} for link in links]
        places.append(_last_places(run[-1], places))
    else:
        places = [_only_places(run[0])]
        streams = list(places[0])
    name = _chain_name([call.path for call in run])
    blocks = []
    for index, (call, place) in enumerate(zip(run, places, strict=True)):
        followed = [Followed(trace, call, streams, through_norms=norms) for norms in (False, True)]
        blocks.append(_block(followed, _within(trace, call), (name, index, call), place))
    return Chain(name=name, blocks=tuple(blocks), streams=tuple(streams))


def _last_places(last: ModuleCall, places: list[dict[str, int]]) -> dict[str, int]:
    """Nobody reads the last block's output by argument name: it leaves where the others' did."""
    return {
        stream: place
        for stream, place in places[-1].items()
        if place in last.outputs and last.outputs[place].shape == last.inputs[stream].shape
    }


def _only_places(call: ModuleCall) -> dict[str, int]:
    for slot, port in call.inputs.items():
        for place, out in call.outputs.items():
            if port.floating and port.shape == out.shape:
                return {slot: place}
    return {}


def _chain_name(paths: list[str]) -> str:
    """The common parents of the blocks, e.g. ``transformer.h``; several are joined by ``+``."""
    parents = [
        path.rpartition(".")[0] if path.rpartition(".")[2].isdigit() else path for path in paths
    ]
    return "+".join(dict.fromkeys(parents))


def _block(
    both: Sequence[Followed],
    attentions: list[Attention],
    where: tuple[str, int, ModuleCall],
    places: dict[str, int],
) -> Block:
    chain, index, call = where
    followed, through_norms = both
    sites = []
    ends = {stream: call.outputs[place].value for stream, place in places.items()}
    writes = {stream: followed.writes(stream, end) for stream, end in ends.items()}
    additions = {
        stream: through_norms.writes(stream, end) if isinstance(known, Unavailable) else known
        for (stream, end), known in zip(ends.items(), writes.values(), strict=True)
    }
    for number, attention in enumerate(attentions):
        sources = followed.streams_of(attention.query)
        site = Site(
            chain=chain,
            index=index,
            path=attention.call.path,
            call=number,
            stream="+".join(sources),
        )
        cross = bool(sources) and not followed.streams_of(attention.key)
        sites.append(AttentionSite(site=site, cross=cross, groups=attention.groups))
    return Block(
        index=index,
        path=call.path,
        attentions=tuple(sites),
        places=places,
        writes=writes,
        additions=additions,
        overwritten=call.overwritten.intersection(places),
        sites={s: Site(chain=chain, index=index, path=call.path, call=0, stream=s) for s in places},
    )


def _within(trace: Trace, call: ModuleCall) -> list[Attention]:
    return [a for a in trace.attentions if a.op in call.ops]


def _outside(index: int, attention: Attention) -> AttentionSite:
    site = Site(chain="outside", index=index, path=attention.call.path, call=0, stream="")
    cross = attention.lengths[0] != attention.lengths[1]
    return AttentionSite(site=site, cross=cross, groups=attention.groups)


def _depth(chains: tuple[Chain, ...], attentions: int) -> Chain | Unavailable:
    if not chains:
        return Unavailable("no run of blocks feeds one another; name them with blocks=[...]")
    last = chains[-1]
    held = sum(len(block.attentions) for block in last.blocks)
    if len(chains) > 2 and held < attentions / 4:
        return Unavailable(
            f"its attention is spread over {len(chains)} chains of different shape (a pyramid or a "
            "U-Net); name one with blocks=[...]"
        )
    return last


def _tail(trace: Trace, last: ModuleCall, depth: Chain) -> Tail | Unavailable:
    if not trace.output_values:
        return Unavailable("the model returned no floating-point tensor")
    names = list(trace.output_values)
    target = next((n for n in ("logits", "sample") if n in names), names[0])
    reasons = []
    for place in depth.blocks[-1].places.values():
        tail = tail_of(trace, last, place, target)
        if isinstance(tail, Tail):
            return tail
        reasons.append(tail.reason)
    return Unavailable(reasons[0] if reasons else "no stream leaves the last block")


def _blindness(trace: Trace) -> str:
    """Why no attention was seen, from what was."""
    name = type(trace.root.module).__name__
    softmax = [i for i, op in enumerate(trace.ops) if op.func.__name__ == "softmax"]
    if any(op.func is MULTI_HEAD for op in trace.ops):
        return (
            f"{name} calls nn.MultiheadAttention with need_weights=True, which never reaches "
            "scaled_dot_product_attention. Call it with need_weights=False to have it read."
        )
    if not softmax:
        return (
            f"{name} made no attention call and no softmax in {len(trace.ops)} torch operations: "
            "it is not an attention model, so there is nothing to read."
        )
    maker = trace.makers[softmax[0]]
    return (
        f"{name} computes attention by hand: {len(softmax)} softmax calls, the first in "
        f"{maker.path} ({type(maker.module).__name__}), and none through "
        "scaled_dot_product_attention or a transformers attention interface. Its queries and keys "
        "cannot be seen or replaced, so it is refused."
    )
