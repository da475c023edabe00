"""The table of tokens: what every token and every guess reads, and that each is spelled once."""

from types import SimpleNamespace

import numpy as np

from flowscope.instruments.audit.tokens.measure import _token_table

SIZES = (3, 70, 1, 2, 5)
LAYERS = 4


def reading():
    rng = np.random.default_rng(0)
    n = sum(SIZES)
    depth = {
        "prompt": np.repeat(np.arange(len(SIZES)), SIZES),
        "position": np.concatenate([np.arange(size) for size in SIZES]),
        "state_sq": np.ones((n, LAYERS + 1)),
        "argmax": rng.integers(0, 9, size=(n, LAYERS + 1)),
        "total_variation": rng.random((n, LAYERS)),
    }
    depth |= {name: rng.random((n, LAYERS + 1)) for name in ("mobility_frobenius", "entropy")}
    return SimpleNamespace(depth=depth | {"p_max": rng.random((n, LAYERS + 1))})


def bench(asked, *, images):
    shown = [np.arange(size) % 6 + number for number, size in enumerate(SIZES)]
    prompts = SimpleNamespace(images=images, at=lambda p: SimpleNamespace(shown=shown[p]))

    def word(outcome):
        asked.append(outcome)
        return f"<{outcome}>"

    return SimpleNamespace(subject=SimpleNamespace(prompts=prompts, word=word))


def test_every_token_and_every_guess_is_named():
    asked, found = [], reading()
    table = _token_table(bench(asked, images=False), found)
    assert len(table) == (3 + 64 + 1 + 2) * (LAYERS + 1)
    for row in table.itertuples():
        assert row.token == f"<{row.position % 6 + row.prompt}>"
    rows = np.nonzero((found.depth["prompt"] < 4) & (found.depth["position"] < 64))[0]
    assert table["top_token"].tolist() == [f"<{k}>" for k in found.depth["argmax"][rows].ravel()]
    assert len(asked) <= 2 * 9
    assert all(type(outcome) is int for outcome in asked)


def test_an_image_is_no_token():
    table = _token_table(bench([], images=True), reading())
    assert set(table["token"]) == {"image"}
    assert table["top_token"].str.startswith("<").all()
