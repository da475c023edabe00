r"""Figures of the depth path of a language model: how far the output moves from layer to layer.

With the states $z^\ell = \operatorname{tail}(h^\ell)$, ℓ = 0..L, of one token, centred over the
vocabulary, and $p^\ell = \operatorname{softmax} z^\ell$:

.. math:: \bar S_L = \frac{\sum_{\ell=1}^{L} \|z^\ell - z^{\ell-1}\|^2}
                          {\sum_{\ell=1}^{L} \|z^\ell\|^2}, \qquad
          \|J\|_F,\; J = \operatorname{diag} p - p\,p^\top

and the locking depth is the first layer from which on the largest entry of z stays in its place.
The last state is the one before the final norm: the tail does the norm itself.
"""

import torch
from torch import Tensor, nn

import flowscope as fs
from flowscope.records import Unavailable

__all__ = [
    "depth_figures",
    "depth_states",
    "locking_depth",
    "mobility_size",
    "normalised_variation",
]


def depth_states(model: nn.Module, ids: Tensor) -> list[Tensor]:
    """Centred logits ``[tokens, vocabulary]`` after 0..L blocks, in float32."""
    hidden: list[Tensor] = []

    def listener(event: fs.tap.BlockPass) -> None:
        hidden.extend([event.hidden_in] * (not hidden))
        hidden.append(event.hidden_out)

    with torch.no_grad(), fs.Tap(model) as tap:
        tap.on_block(listener)
        output = model(input_ids=ids, use_cache=False).logits
        tail = tap.anatomy.tail
        if isinstance(tail, Unavailable):
            raise RuntimeError(f"the tail cannot be replayed: {tail}")
        states = [tail.rows(h).flatten(0, 1).float() for h in hidden]
    torch.testing.assert_close(states[-1], output.flatten(0, 1).float(), rtol=1e-3, atol=1e-3)
    return [z - z.mean(-1, keepdim=True) for z in states]


def normalised_variation(states: list[Tensor]) -> Tensor:
    """S̄_L of each token over the whole depth."""
    steps = zip(states[1:], states[:-1], strict=True)
    moved = sum((after - before).square().sum(-1) for after, before in steps)
    return moved / sum(z.square().sum(-1) for z in states[1:])


def locking_depth(states: list[Tensor]) -> Tensor:
    """First layer, 0..L, from which on the argmax of each token never changes."""
    top = torch.stack([z.argmax(-1) for z in states])
    differs = (top != top[-1]).long()
    # 1 + the last layer that still differs; a token that never differs locks at 0.
    layers = torch.arange(1, len(states) + 1, device=top.device)[:, None]
    return (differs * layers).amax(0)


def mobility_size(p: Tensor) -> Tensor:
    """‖J‖_F of each row, over the entries beside the largest: nothing cancels near a vertex."""
    place = p.argmax(-1, keepdim=True)
    peak, rest = p.gather(-1, place)[..., 0].double(), p.scatter(-1, place, 0.0).double()
    first, second, fourth = (rest.pow(k).sum(-1) for k in (1, 2, 4))
    own = (rest * (1 - rest)).square().sum(-1)
    square = peak.square() * (first.square() + 2 * second) + own + second.square() - fourth
    return square.sqrt()


def depth_figures(model: nn.Module, ids: Tensor) -> dict[str, float]:
    """Medians over the tokens of a batch: S̄_L, mobility at the end and over layers, locking."""
    states = depth_states(model, ids)
    mobility = torch.stack([mobility_size(z.softmax(-1)) for z in states])
    return {
        "variation": float(normalised_variation(states).median()),
        "mobility_last": float(mobility[-1].median()),
        "mobility_mean": float(mobility.mean(0).median()),
        "locking_depth": float(locking_depth(states).float().median()),
    }
