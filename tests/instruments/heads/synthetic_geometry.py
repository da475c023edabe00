"""A run folder as `flowscope heads` would leave it, from a fixed seed.

The chains are real: scores of a random head on a sentence of twenty-four tokens, their softmax,
its stationary law and currents. Texts include what an attacker would write into a prompt.
"""

import numpy as np
import pandas as pd
from tests.instruments.audit.synthetic import number, verdict
from tests.instruments.audit.synthetic_flow import HOSTILE

from flowscope.records import Manifest, Run

LAYERS, HEADS = 30, 9
SENTENCE = (
    "The tower was built in 1889 by a group of engineers who had never worked together before , "
    "and its first visitors came from"
)
TOKENS = [(" " if k else "") + word for k, word in enumerate(SENTENCE.split())]
NASTY = {3: HOSTILE, 7: "\n\t", 11: "\u202e evil", 14: "<b>%{x}$</b>", 17: "x" * 300, 20: "مرحبا"}
SILENT = "the chain of this head has two closed classes"
NO_WEIGHTS = "rotary positions: the scores are no bilinear form of the token states"
STATISTICS = ("entropy_production", "displacement", "gap", "effective_keys", "flux_ratio",
              "exact_share", "negative_share")  # fmt: skip
SETTINGS = {
    "metric": ("0", "0.5", "2"),
    "exact": ("0", "0.5", "2"),
    "flux": ("0", "0.5", "2"),
    "alpha": ("0.5", "1"),
    "temperature": ("0.7", "1.4"),
    "square": ("a=0, b=1", "a=0, b=0"),
}


def write_geometry(
    folder, *, size=(LAYERS, HEADS), tokens=None, chain="unmasked", hostile=True, study=False,
    without=(),
):  # fmt: skip
    """Write the run; ``without`` names tables, arrays or "random" to leave out."""
    rng = np.random.default_rng(23)
    tokens = list(TOKENS) if tokens is None else tokens
    for k, text in NASTY.items() if hostile else ():
        if k < len(tokens):
            tokens[k] = text
    run = Run.create(folder, manifest(hostile, chain))
    arrays = portrait(rng, size, len(tokens), chain)
    tables = {
        "geometry": geometry_table(rng, size, arrays, chain, hostile, "random" not in without),
        "sentence": pd.DataFrame({"position": range(len(tokens)), "token": tokens}),
        "dials": dial_table(rng, hostile),
    }
    if study:
        tables |= {"diffusion_attention": claim_table(hostile), "identities": identity_table()}
    for name, frame in tables.items():
        if name not in without:
            run.write_table(name, frame)
    kept = {name: array for name, array in arrays.items() if name not in without}
    if "portrait" not in without:
        run.write_arrays("portrait", kept)
    run.write_verdicts([claim()])
    return run


def manifest(hostile, chain):
    name = "example/SmallLM-135M" + ("<script>alert(3)</script>" if hostile else "")
    config = {"command": "heads", "model": name, "chain": chain, "damping": 0.01}
    return Manifest(
        config_given={"model": name},
        config_resolved={**config, "measured": {"prompts": 32, "tokens_measured": 4096}},
        seeds={"bootstrap": 7},
        versions={"flowscope": "0.2.0"},
        device="cpu",
        wall_time=44.0,
        created_at="2025-03-01T12:00:00+00:00",
    )


def claim():
    because = "the median over heads is above that of random weights, and the interval is too"
    return verdict("M1: heads are out of equilibrium",
                   number("median entropy production", 0.11, 0.02),
                   number("random weights", 0.002, 0.0004), "holds", because, 0.108)  # fmt: skip


def portrait(rng, size, n, chain):
    """Chains of every head on the sentence, from scores with a symmetric and a turning part."""
    layers, heads = size
    place = np.arange(n)
    near = -0.12 * np.abs(place[:, None] - place)
    points = rng.standard_normal((layers, heads, n, 4))
    metric = points @ points.swapaxes(-1, -2) * 0.5
    turn = rng.standard_normal((layers, heads, n, n)) * 0.5
    strength = 10 ** rng.uniform(-2.2, 0.5, (layers, heads, 1, 1))
    ahead = 0.9 * np.sin(2 * np.pi * (place - place[:, None]) / n)
    flux = strength * ((turn - turn.swapaxes(-1, -2)) * 0.4 + ahead)
    scores = metric + near + flux
    scores[..., 0] += 1.5
    kernel = np.exp(scores - scores.max(-1, keepdims=True))
    kernel /= kernel.sum(-1, keepdims=True)
    law = np.full((layers, heads, n), 1 / n)
    for _ in range(400):
        law = np.einsum("lhi,lhij->lhj", law, kernel)
    flow = law[..., None] * kernel
    current = flow - flow.swapaxes(-1, -2)
    weight = np.exp(metric + near)
    root = 1 / np.sqrt(weight.sum(-1))
    angle = 2 * np.pi * 0.05 * 2 * flux
    magnetic = root[..., None] * weight * np.exp(1j * angle) * root[..., None, :]
    lowest = np.linalg.eigh(magnetic)[1][..., -1]
    smooth = np.linalg.eigh(root[..., None] * weight * root[..., None, :])[1]
    maps = np.stack([smooth[..., -2], smooth[..., -3]], -1) * root[..., None] if n > 2 else None
    arrays = {
        "kernel": kernel,
        "current": current * np.nan if chain == "quasi-stationary" else current,
        "law": law,
        "diffusion": np.zeros((layers, heads, n, 2)) if maps is None else maps,
        "magnetic": np.stack([lowest.real, lowest.imag], -1),
    }
    if layers * heads > 40:
        for array in arrays.values():
            array[1, 4] = np.nan  # a head that abstains
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def geometry_table(rng, size, arrays, chain, hostile, random):
    layers, heads = size
    grid = pd.MultiIndex.from_product([range(1, layers + 1), range(heads)], names=["layer", "head"])
    frame = grid.to_frame(index=False).assign(chain=chain)
    n = len(frame)
    with np.errstate(all="ignore"):
        sigma = np.nansum(np.abs(arrays["current"]), (-1, -2)).ravel() ** 2 * 3 + 1e-5
    sigma = sigma if chain != "quasi-stationary" else np.full(n, np.nan)
    values = {
        "entropy_production": sigma,
        "displacement": rng.uniform(0.1, 0.6, n),
        "gap": rng.uniform(0.2, 0.9, n),
        "effective_keys": rng.uniform(2, 18, n),
        "flux_ratio": 10 ** rng.uniform(-1.5, 0.6, n),
        "exact_share": rng.uniform(0.05, 0.9, n),
        "negative_share": rng.uniform(0, 0.2, n) ** 2,
    }
    for name, column in values.items():
        frame[name], frame[f"{name}_low"], frame[f"{name}_high"] = (
            column,
            column * 0.85,
            column * 1.2,
        )
        frame[f"{name}_random"] = column * 0 + rng.uniform(0.5, 1, n) * 0.002 if random else np.nan
    frame["steps_to_tell"], frame["steps"] = np.log(20) / frame["entropy_production"], 512
    frame["weight_ratio"], frame["weight_because"] = np.nan, NO_WEIGHTS
    frame["status"], frame["because"] = "ok", ""
    labels = np.select([sigma > 0.02, sigma < 0.0015], ["steady state", "equilibrium"], "undecided")
    frame["label"] = labels if chain != "quasi-stationary" else "refused"
    if n > 40:
        silent = (np.arange(n) % 53 == heads + 4) | (np.arange(n) == heads + 4)
        frame.loc[silent, list(values)] = np.nan
        frame.loc[silent, ["status", "label"]] = "abstained", "refused"
        frame.loc[silent, "because"] = SILENT + (HOSTILE if hostile else "")
    return frame


def dial_table(rng, hostile):
    rows = [("none", "", "all", "all", 0.0, np.nan)]
    for dial, settings in SETTINGS.items():
        for setting in settings:
            size = {"metric": 1.4, "exact": 0.05, "flux": 0.2, "square": 3.0}.get(dial, 0.3)
            change = size * rng.uniform(0.2, 1) - 0.01
            twin = change * rng.uniform(0.6, 2.5)
            rows.append((dial, setting, "all", "all", change, twin))
    rows.append(("flux", "0", "3", "all", 0.004, 0.012))
    rows.append(("flux", "0 " + (HOSTILE if hostile else ""), "3", "2", -0.002, 0.001))
    names = ["dial", "setting", "layers", "heads", "change", "random_change"]
    frame = pd.DataFrame(rows, columns=names)
    for name in ("change", "random_change"):
        spread = 0.004 + 0.12 * frame[name].abs()
        frame[f"{name}_low"], frame[f"{name}_high"] = frame[name] - spread, frame[name] + spread
    frame["loss"] = 3.1 + frame["change"]
    frame["perplexity"] = np.exp(frame["loss"])
    frame["norm"], frame["tokens"], frame["prompts"] = 0.4, 4096, 32
    return frame


def claim_table(hostile):
    text = HOSTILE if hostile else ""
    rows = [
        ("row gauge", "§2, eq 3", "softmax of −d→ is attention", "largest error 3.1e-7", "yes",
         "error below the bound of rounding"),
        ("labels", "§5", f"most heads are in a steady state {text}", "214 of 270 heads", "yes",
         "interval of the share above one half"),
        ("Sinkhorn", "§6", "forward and backward scalings are unrelated",
         "each is the transpose of the other, error 2e-7", "no", "transpose within rounding"),
        ("training", "§7", "the flux grows during training", "not measured on this model",
         "not measured", "slope above 0"),
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["item", "where", "says", "measured", "agrees", "rule"])


def identity_table():
    rows = [
        ("attention is a kernel of d→", "softmax(−β d→) = softmax(β W)", 3.1e-7, 270, 2e-6, True),
        ("product of experts", "rownorm(A→ ⊙ A←) = softmax(−β D)", 8.8e-7, 270, 4e-6, True),
        ("cycle affinity", "log P_ij P_jk P_ki − log P_ik P_kj P_ji = 2β(A_ij + A_jk + A_ki)",
         5e-5, 270, 2e-5, False),
    ]  # fmt: skip
    names = ["identity", "formula", "error", "heads", "bound", "holds"]
    return pd.DataFrame(rows, columns=names)
