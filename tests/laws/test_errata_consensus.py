"""Errata of source 003 on the barycenter of several models (E115, E116)."""

import copy

import torch
from tests import networks

from flowscope.levers import consensus
from flowscope.transport import barycenter_drift


def changed(model, seed=5, size=1.0):
    draw = torch.Generator().manual_seed(seed)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for weight in twin.parameters():
            weight += size * weight.std() * torch.randn(weight.shape, generator=draw)
    return twin


# E115


def test_states_of_permuted_tokens_are_at_their_barycenter_although_no_token_agrees():
    x = torch.randn((24, 4), generator=torch.Generator().manual_seed(0)).double()
    order = torch.arange(24).roll(1)
    drift = barycenter_drift([x, x[order]], 1.0, support=x, relative_epsilon=0.01)
    size = (x - x[order]).norm()
    assert max(v.norm() for v in drift.velocities) < 0.02 * size
    paired = (x[order] - x) / 2  # what brings the same tokens together
    assert paired.norm() > 0.4 * size


@torch.no_grad()
def test_the_barycenter_of_a_causal_text_looks_ahead_and_the_mean_of_pairs_does_not():
    model, batch = networks.gpt2()
    ids = batch["input_ids"][:1]
    later = ids.clone()
    later[0, -1] = (later[0, -1] + 1) % networks.VOCAB
    gaps = {}
    for coupling in ("paired", "transport"):
        with consensus([model, changed(model)], coupling=coupling) as both:
            logits = [both(input_ids=tokens)[0].logits[0, :-1] for tokens in (ids, later)]
        gaps[coupling] = float((logits[0] - logits[1]).abs().max())
    assert gaps["paired"] == 0
    assert gaps["transport"] > 1e-6


@torch.no_grad()
# E116


def test_isomorphic_states_are_not_enough_for_a_barycenter():
    """One function in two coordinates: the mean of x and −x is 0, whatever the function was."""
    x = torch.randn((64, 4), generator=torch.Generator().manual_seed(1)).double()
    drawn = torch.randn((4, 4), generator=torch.Generator().manual_seed(2)).double()
    turn = torch.linalg.qr(drawn).Q
    read = torch.randn((4, 3), generator=torch.Generator().manual_seed(3)).double()
    law, twin = torch.softmax(x @ read, -1), torch.softmax(x @ turn @ (turn.T @ read), -1)
    torch.testing.assert_close(law, twin)
    middle = (x + x @ turn) / 2
    gap = 0.5 * (torch.softmax(middle @ read, -1) - law).abs().sum(-1)
    assert gap.mean() > 0.1
    back = (x + x @ turn @ turn.T) / 2
    torch.testing.assert_close(torch.softmax(back @ read, -1), law)
