"""Attention heard by its name: the same events as by a function mode, in one thread and pass."""

import threading
from dataclasses import replace
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from tests import networks as models
from torch import nn
from torch.nn.functional import scaled_dot_product_attention as bound_at_import

from flowscope import Tap
from flowscope.errors import TapError
from flowscope.tap import tap as tap_module
from flowscope.tap.dispatch import ATTENTION

FAMILIES = models.READABLE | models.FURTHER
LISTENING = {"gemma2": "interface", "encoder": "mode"}


def _heard(model, batch, **listeners):
    """Every event of one pass in order, its output, and how attention was heard."""
    events = []
    with Tap(model) as tap, torch.no_grad():
        if listeners.get("attention", True):
            tap.on_attention(
                lambda c: events.append(
                    (
                        c.site,
                        c.q,
                        c.k,
                        c.v,
                        c.mask,
                        c.causal,
                        c.scale,
                        c.groups,
                        c.cross,
                        c.output(),
                    )
                )
            )
        if listeners.get("blocks", True):
            tap.on_block(
                lambda e: events.append((e.site, e.hidden_in, e.hidden_out, *(w for w in e.writes)))
            )
        output = models.first_tensor(model(**batch))
        return events, output, tap.anatomy


@pytest.fixture
def by_mode(monkeypatch):
    """Has models that are probed from then on listened to through a function mode."""
    probe = tap_module.probe

    def set_on():
        changed = lambda *given: replace(probe(*given), listening="mode")  # noqa: E731
        monkeypatch.setattr(tap_module, "probe", changed)

    return set_on


def _same(mine, theirs):
    if isinstance(mine, (tuple, list)):
        return len(mine) == len(theirs) and all(map(_same, mine, theirs))
    return torch.equal(mine, theirs) if torch.is_tensor(mine) else mine == theirs


@pytest.mark.parametrize("name", FAMILIES)
def test_name_and_mode_give_the_same_events_in_the_same_order(name, by_mode):
    model, batch = FAMILIES[name]()
    with torch.no_grad():
        expected = models.first_tensor(model(**batch))
    twin, _ = FAMILIES[name]()
    events, output, anatomy = _heard(model, batch)
    assert anatomy.listening == LISTENING.get(name, "name")
    if anatomy.listening == "name":
        assert torch.equal(output, expected)
        by_mode()
    others, other, anatomy = _heard(twin, batch)
    assert anatomy.listening == LISTENING.get(name, "mode")
    assert torch.equal(output, other)
    assert len(events) > 3
    assert _same(events, others)
    sites = [event[0] for event in events if len(event) == 10]
    assert sites == [place.site for place in anatomy.order]


@pytest.mark.parametrize("name", ["llama", "t5", "sd3", "dit"])
def test_listeners_of_one_kind_hear_what_they_hear_beside_the_other(name):
    model, batch = models.READABLE[name]()
    both, _, _ = _heard(model, batch)
    attention, _, _ = _heard(model, batch, blocks=False)
    blocks, _, _ = _heard(model, batch, attention=False)
    assert _same(attention, [event for event in both if len(event) == 10])
    assert _same(blocks, [event for event in both if len(event) != 10])


def test_listening_by_name_enters_no_function_mode():
    model, batch = models.dit()
    depths = []
    for kind, writes in (("attention", False), ("blocks", False), ("blocks", True)):
        with Tap(model) as tap, torch.no_grad():
            if kind == "attention":
                tap.on_attention(lambda call: None)
            else:
                tap.on_block(lambda event: None, writes=writes)
            handle = model.transformer_blocks[1].register_forward_hook(
                lambda *_: depths.append(torch._C._len_torch_function_stack())
            )
            model(**batch)
            handle.remove()
    assert [depths[k] for k in (-3, -2, -1)] == [0, 0, 1]


class Bound(nn.Module):
    """Attends through a name of its own module, and through torch's where told."""

    def __init__(self, by_name=False):
        super().__init__()
        self.by_name = by_name

    def forward(self, x):
        attend = F.scaled_dot_product_attention if self.by_name else bound_at_import
        return x + attend(x, x, x)


class Stack(nn.Module):
    def __init__(self, *blocks):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x, depth=None):
        for block in self.blocks[:depth]:
            x = block(x)
        return x


@pytest.mark.parametrize(
    ("blocks", "listening"),
    [((False, False), "mode"), ((True, False), "mode"), ((True, True), "name")],
)
@torch.no_grad()
def test_a_name_bound_at_import_stays_on_the_mode(blocks, listening):
    model, x, sites = Stack(*map(Bound, blocks)).eval(), torch.randn(1, 2, 5, 4), []
    with Tap(model) as tap:
        tap.on_attention(lambda call: sites.append(call.site.index))
        model(x)
        assert tap.anatomy.listening == listening
    assert sites == [0, 1]


@torch.no_grad()
def test_a_pass_with_a_missing_call_is_refused_and_the_model_probed_anew():
    model, x = Stack(Bound(True), Bound(True), Bound(True)).eval(), torch.randn(1, 2, 5, 4)
    with Tap(model) as tap:
        sites = []
        tap.on_attention(lambda call: sites.append(call.site.index))
        model(x, depth=3)
        with pytest.raises(TapError, match="2 attention calls where the probing pass saw 3"):
            model(x, depth=2)
        sites.clear()
        model(x, depth=2)
        assert sites == [0, 1]
        with pytest.raises(TapError, match="more attention calls than the 2"):
            model(x, depth=3)
        model(x, depth=3)
    with Tap(model) as tap:
        tap.on_block(lambda event: None, writes=False)
        model(x, depth=3)
        with pytest.raises(TapError, match=r"blocks\.2 was called 0 times"):
            model(x, depth=2)


class Swapped(Stack):
    """Runs its blocks in another order when told."""

    def forward(self, x, back=False):
        for block in reversed(self.blocks) if back else self.blocks:
            x = block(x)
        return x


@torch.no_grad()
def test_blocks_in_another_order_are_refused_where_blocks_are_listened_to():
    model, x = Swapped(Bound(True), Bound(True)).eval(), torch.randn(1, 2, 5, 4)
    with Tap(model) as tap:
        tap.on_attention(lambda call: None)
        tap.on_block(lambda event: None)
        model(x, False)
        with pytest.raises(TapError, match=r"by blocks\.1, and in the probing pass by blocks\.0"):
            model(x, True)


def _in_thread(job):
    values, errors = [], []

    def run():
        try:
            values.append(job())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return values[0]


@torch.no_grad()
def test_another_thread_finds_torchs_own_function_and_its_compiled_code_is_not_made_anew():
    torch.compiler.reset()
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    def attended(x):
        return F.scaled_dot_product_attention(x, x, x) + 1

    def again(x):
        return F.scaled_dot_product_attention(x, x, x) + 2

    x = torch.randn(1, 2, 5, 4)
    before = torch.compile(attended, backend=backend, fullgraph=True)
    expected = before(x)
    seen = []

    @torch.no_grad()
    def look():
        fresh = torch.compile(again, backend=backend, fullgraph=True)
        return F.scaled_dot_product_attention is ATTENTION, before(x), fresh(x)

    model, batch = models.gpt2()
    with Tap(model) as tap:
        tap.on_attention(lambda call: seen.append(_in_thread(look)) if not seen else None)
        tap.on_attention(lambda call: seen.append(F.scaled_dot_product_attention is ATTENTION))
        model(**batch)
    own, compiled, fresh = seen[0]
    assert own
    assert torch.equal(compiled, expected)
    assert torch.equal(fresh, again(x))
    assert len(graphs) == 2  # one before the pass, one new function in it
    before(x)
    assert len(graphs) == 2
    assert type(F) is ModuleType


@pytest.mark.parametrize("error", [None, ZeroDivisionError, KeyboardInterrupt])
@torch.no_grad()
def test_the_name_is_torchs_own_after_a_pass(error):
    model, batch = models.gpt2()
    names = []

    def listener(call):
        names.append(type(F) is ModuleType)
        if error is not None and call.site.index == 1:
            raise error

    with Tap(model) as tap:
        tap.on_attention(listener)
        if error is None:
            model(**batch)
        else:
            with pytest.raises(error):
                model(**batch)
        assert type(F) is ModuleType
        assert F.scaled_dot_product_attention is ATTENTION
    assert names
    assert not any(names)


@torch.no_grad()
def test_two_taps_and_a_nested_model_do_not_hear_each_other():
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Stack(Bound(True), Bound(True)), Stack(Bound(True))

        def forward(self, x):
            return self.second(self.first(x))

    pair, x = Pair().eval(), torch.randn(1, 2, 5, 4)
    heard = {"pair": [], "first": [], "second": []}
    with Tap(pair) as a, Tap(pair.first) as b, Tap(pair.second, blocks="blocks") as c:
        for tap, name in ((a, "pair"), (b, "first"), (c, "second")):
            tap.on_attention(lambda call, name=name: heard[name].append(call.site.path))
        pair(x)
        pair.second(x)
    assert heard["pair"] == ["first.blocks.0", "first.blocks.1", "second.blocks.0"]
    assert heard["first"] == ["blocks.0", "blocks.1"]
    assert heard["second"] == 2 * ["blocks.0"]


@torch.no_grad()
def test_what_hides_from_function_modes_hides_from_the_name():
    model, batch = models.gpt2()
    calls = []

    def listener(call):
        with torch._C.DisableTorchFunction():
            F.scaled_dot_product_attention(call.q, call.k, call.v)

    with Tap(model) as outer, Tap(model) as inner:
        outer.on_attention(lambda call: calls.append(call.site.index))
        inner.on_attention(listener)
        model(**batch)
    assert calls == [0, 1, 2]


def test_writes_that_nobody_asked_for_are_refused_in_a_sentence():
    model, batch = models.gpt2()
    with Tap(model) as tap, torch.no_grad():
        tap.on_block(lambda event: event.writes, writes=False)
        with pytest.raises(TapError, match="listener was added with writes=False"):
            model(**batch)
        tap.on_block(lambda event: None)  # asks for writes: now they are there for both
        model(**batch)


class InPlace(nn.Module):
    """Adds to its input in place."""

    def forward(self, x):
        x += F.scaled_dot_product_attention(x, x, x)
        return x.mul_(2)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("writes", [False, True])
def test_the_state_that_entered_a_block_is_kept_where_the_block_writes_into_it(context, writes):
    model, states = Stack(InPlace(), InPlace()).eval(), []
    x = torch.randn(1, 2, 5, 4)
    entered = [x.clone()]
    for block in list(model.blocks)[:1]:
        entered.append(block(entered[-1].clone()))
    with context(), Tap(model) as tap:
        tap.on_block(lambda event: states.append(event.hidden_in.clone()), writes=writes)
        model(x.clone())
    assert _same(states, entered)
