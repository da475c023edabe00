"""A lever acts on the passes of its own thread; every other thread runs the model untouched."""

import threading

import torch
from benchmarks.attack.lever_threads import attacked_levers
from benchmarks.attack.threads import COUNTS
from tests import networks as models

from flowscope.levers import couple
from flowscope.probes.block_callable import live_block


def in_thread(job):
    """The value of a job that runs in another thread."""
    values = []
    thread = threading.Thread(target=lambda: values.append(job()))
    thread.start()
    thread.join()
    return values[0]


@torch.no_grad()
def output(model, batch):
    return models.first_tensor(model(**batch))


def hooks(model):
    """Hooks of all modules, and what stands where torch looks for a compiled call."""
    return [
        [name, [*value]]
        for module in model.modules()
        for name, value in vars(module).items()
        if name.endswith("_hooks")
    ]


def test_ten_trials_of_levers_in_threads_break_and_miscount_nothing():
    counts = attacked_levers(10)
    assert sum(count["trials"] for count in counts.values()) == 10
    wrong = {kind: {n: c[n] for n in COUNTS if c[n]} for kind, c in counts.items()}
    assert wrong == {"coupled": {}, "cut": {}, "agreed": {}}


def test_a_coupled_model_has_no_hooks_and_other_threads_get_the_bare_output():
    model, batch = models.sd3()
    other = {name: x.flip(1) if x.ndim > 1 else x for name, x in batch.items()}
    bare, before = output(model, other), hooks(model)
    with couple(model, 0.7) as lever:
        coupled = output(model, batch)
        assert hooks(model) == before
        assert torch.equal(in_thread(lambda: output(model, other)), bare)
        assert {change.passes for change in lever.summary()} == {1}
        assert torch.equal(output(model, batch), coupled)
    assert not torch.equal(output(model, batch), coupled)
    assert hooks(model) == before


def test_a_pass_of_another_thread_inside_a_coupled_pass_leaves_its_block_alone(monkeypatch):
    """The trial run of a block starts from the arguments of the thread that couples."""
    model, batch = models.sd3()
    other = {name: x.flip(1) if x.ndim > 1 else x for name, x in batch.items()}
    twin, _ = models.sd3()
    with couple(twin, 0.7):
        expected = output(twin, batch)
    lever = couple(model, 0.7)
    refuse = lever._image.refuse_folded
    monkeypatch.setattr(
        lever._image,
        "refuse_folded",
        lambda call: (in_thread(lambda: output(model, other)), refuse(call)),
    )
    with lever:
        assert torch.equal(output(model, batch), expected)


def test_a_block_is_cut_without_hooks_and_from_its_own_thread(monkeypatch):
    model, batch = models.dit()
    other = {**batch, "hidden_states": batch["hidden_states"].flip(1)}
    expected, before, seen = live_block(model, batch, 1).H0, hooks(model), []
    forward = model.pos_embed.forward

    def spying(latent):
        seen.append(hooks(model) == before)
        if threading.current_thread() is threading.main_thread():
            in_thread(lambda: output(model, other))
        return forward(latent)

    monkeypatch.setattr(model.pos_embed, "forward", spying)
    assert torch.equal(live_block(model, batch, 1).H0, expected)
    assert len(seen) > 2
    assert all(seen)


def test_a_block_of_a_compiled_model_is_cut_by_an_eager_pass():
    model, batch = models.dit()
    expected = live_block(model, batch, 1).H0
    torch.compiler.reset()
    model.compile(backend="eager")
    output(model, batch)
    assert torch.equal(live_block(model, batch, 1).H0, expected)
