"""A run folder as `flowscope sync` would leave it, from a fixed seed.

Curves are sigmoids with noise, so midpoints and fits belong together; the images are two blobs
that drift apart when their pair is let go early. Texts include what an attacker would write.
"""

import numpy as np
import pandas as pd
from tests.instruments.audit.synthetic import number, verdict
from tests.instruments.audit.synthetic_flow import HOSTILE

from flowscope.records import Manifest, Run

COUPLINGS = (0.1, 0.3, 1.0)
STEPS, LAYERS, PAIRS = 50, 16, 8
LETTING_GO = tuple(range(0, STEPS + 1, 5))
CLASSES = ("sneaker", "coat")
FLAT = "the amplitude 0.02 [−0.03, 0.07] holds 0"
NEVER = "the gain of this mode never crosses 1"
SILENT = "fewer than 4 pairs per half"
MIDDLES = {"feature": 26.0, "coarse": 20.0, "fine": 33.0}
NASTY = "<b>%{x}$</b>" + HOSTILE
OPTIONAL = ("coupling_effect", "propagation", "mode_commitment")


def write_replicas(
    folder, *, couplings=COUPLINGS, pairs=PAIRS, layers=LAYERS, classes=CLASSES, hostile=True,
    study=False, without=(), size=(1, 16, 16),
):  # fmt: skip
    """Write the run; ``without`` names tables or the arrays "strip" to leave out."""
    rng = np.random.default_rng(29)
    names = [name + (NASTY if hostile and k == 1 else "") for k, name in enumerate(classes)]
    run = Run.create(folder, manifest(hostile, couplings, pairs, layers, names))
    agreement, commitment = curves(rng, couplings, pairs, names)
    tables = {
        "agreement": agreement,
        "commitment": commitment,
        "commitment_gap": gaps(commitment),
        "coupling_effect": effects(names, pairs, hostile),
        "internal_gap": internal(rng, couplings, layers, pairs, hostile),
        "energies": energies(couplings, layers),
        "propagation": propagation(rng, couplings, layers, pairs),
        "mode_commitment": modes(rng, couplings, layers),
    }
    tables |= {"synchronization_gap": claims(hostile)} if study else {}
    for name, frame in tables.items():
        if name not in without:
            run.write_table(name, frame)
    if "strip" not in without:
        run.write_arrays("strip", strip(rng, couplings, size))
    run.write_verdicts(verdicts())
    return run


def manifest(hostile, couplings, pairs, layers, classes):
    name = "example/dit-fashion" + ("<script>alert(3)</script>" if hostile else "")
    config = {"command": "sync", "model": name, "steps": STEPS, "pairs": pairs, "sigma": 0.2,
              "couplings": list(couplings), "interventions": list(LETTING_GO), "guidance": 1.0,
              "labels": list(range(len(classes))), "band": 2, "seed": 0,
              "resamples": 1000}  # fmt: skip
    measured = {"pairs": pairs, "steps": STEPS, "layers": layers, "tokens": 256,
                "classes": classes, "encoder": "bundled encoder, 64 features"}  # fmt: skip
    return Manifest(
        config_given={"model": name},
        config_resolved={**config, "measured": measured},
        seeds={"pairs": 0},
        versions={"flowscope": "0.4.0"},
        device="cpu",
        wall_time=212.0,
        created_at="2025-03-01T12:00:00+00:00",
    )


def verdicts():
    later = "tau_fine − tau_coarse at g = 0.3 is 11 steps, and its interval lies above 0"
    return [
        verdict("R1: coarse structure commits before fine detail",
                number("gap of commitment", 11.0, 3.0, "step"), number("no gap", 0.0, 0.0), "holds",
                later, 11.0),
        verdict("R2: there is an internal gap at g = 0 beyond the exchange null",
                number("largest log ratio", 0.31, 0.3), number("exchange null", 0.0, 0.4), "fails",
                "no layer leaves its null band", 0.31),
    ]  # fmt: skip


def sigmoid(x, middle, width):
    return 1 / (1 + np.exp(-(np.asarray(x, dtype=float) - middle) / width))


def curves(rng, couplings, pairs, classes):
    """Agreement and the fits behind it; full coupling of the second class has no transition."""
    steps, rows, fits = np.array(LETTING_GO), [], []
    for label, name in enumerate(classes):
        for g, control in [*((g, False) for g in couplings), (0.0, True)]:
            for measure, middle in MIDDLES.items():
                flat = label == 1 and g == couplings[-1] and not control
                tau = middle - 8 * g + 3 * control + 2 * label
                width, top = 3.5, 0.0 if flat else 0.75
                fit = 0.2 + top * sigmoid(steps, tau, width)
                value = np.clip(fit + 0.02 * rng.standard_normal(len(steps)), -1, 1)
                own = {"label": label, "class": name, "g": g, "control": control,
                       "measure": measure}  # fmt: skip
                rows += [
                    {**own, "step": step, "value": value[k], "low": value[k] - 0.08,
                     "high": value[k] + 0.08, "n": pairs, "fit": np.nan if flat else fit[k]}
                    for k, step in enumerate(LETTING_GO)
                ]  # fmt: skip
                ends = [np.nan] * 3 if flat else [tau, tau - 2.5, tau + 3]
                fits.append(
                    {**own, "midpoint": ends[0], "low": ends[1], "high": ends[2],
                     "amplitude": 0.02 if flat else 0.7, "amplitude_low": -0.03 if flat else 0.6,
                     "amplitude_high": 0.07 if flat else 0.8, "width": width, "n": pairs,
                     "status": "no transition" if flat else "ok", "because": FLAT if flat else ""}
                )  # fmt: skip
    return pd.DataFrame(rows), pd.DataFrame(fits)


def gaps(commitment):
    keys = ["label", "class", "g", "control"]
    rows = []
    for key, own in commitment.groupby(keys, sort=False):
        middle = own.set_index("measure")["midpoint"]
        gap = middle["fine"] - middle["coarse"]
        status, because = ("ok", "") if np.isfinite(gap) else ("no transition", FLAT)
        rows.append({**dict(zip(keys, key, strict=True)), "gap": gap, "low": gap - 4,
                     "high": gap + 4.5, "n": own["n"].iloc[0], "status": status,
                     "because": because})  # fmt: skip
    return pd.DataFrame(rows)


def effects(classes, pairs, hostile):
    names = ["label", "class", "kind", "difference", "low", "high", "n", "status", "because"]
    none = ("no transition", FLAT + (HOSTILE if hostile else ""))
    rows = [(k, name, "least − largest coupling", 7.2, 3.1, 11.0, pairs, "ok", "")
            for k, name in enumerate(classes)]  # fmt: skip
    rows.append((0, classes[0], "least coupling − control", *[np.nan] * 3, pairs, *none))
    return pd.DataFrame(rows, columns=names)


def internal(rng, couplings, layers, pairs, hostile):
    rows = []
    for g in (0.0, *couplings):
        for layer in range(1, layers + 1):
            gap = 1.1 * (1 - g) * sigmoid(layer, 0.8 * layers, 1.2) + 0.06 * rng.standard_normal()
            silent = layer == 2 and g == couplings[-1]
            rows.append(
                {"g": g, "layer": layer, "step": round(26 - 8 * g),
                 "naive": np.exp(gap + 0.6), "log_gap": np.nan if silent else gap,
                 "low": gap - 0.25, "high": gap + 0.25, "null_low": -0.38, "null_high": 0.4,
                 "p": 0.01 if abs(gap) > 0.4 else 0.5, "detectable": 0.52, "band": 2, "n": pairs,
                 "status": "abstained" if silent else "ok",
                 "because": SILENT + (HOSTILE if hostile else "") if silent else ""}
            )  # fmt: skip
    return pd.DataFrame(rows)


def energies(couplings, layers):
    grid = pd.MultiIndex.from_product(
        [(0.0, *couplings), range(1, layers + 1), range(STEPS)], names=["g", "layer", "step"]
    ).to_frame(index=False)
    pace = (0.04 + 0.1 * grid["g"]) * grid["step"]
    deep = grid["layer"] / layers
    grid["lead"] = np.exp(-pace * 0.6)
    grid["trail"] = np.exp(-pace * (0.6 - 0.4 * deep * (1 - grid["g"])))
    grid["difference"] = 0.04 * np.exp(-pace * 0.5) * (1 + deep)
    return grid


def propagation(rng, couplings, layers, pairs):
    rows = []
    for g in (0.0, *couplings):
        for layer in range(1, layers + 1):
            for band in ("lead", "trail"):
                scale = (1 - g) / (1 + g) * (0.3 if band == "trail" else 0.5)
                parts = {"direct": 1.02 + 0.05 * rng.standard_normal(),
                         "routing": scale * (0.4 + layer / layers),
                         "query": 0.08 * rng.standard_normal(),
                         "key": 0.05 * (1 - g) * rng.standard_normal()}  # fmt: skip
                rows.append({"g": g, "layer": layer, "step": 20, "band": band,
                             "gain": sum(parts.values()), **parts,
                             "eigenvalue": 1.9 - 0.4 * g, "n": pairs})  # fmt: skip
    return pd.DataFrame(rows)


def modes(rng, couplings, layers):
    rows = []
    for g in (0.0, *couplings):
        for layer in range(layers - 2, layers + 1):
            for mode in range(1, 7):
                predicted = 18 + 2.5 * mode - 6 * g + rng.standard_normal()
                none = mode == 6
                rows.append({"g": g, "layer": layer, "mode": mode,
                             "predicted": np.nan if none else predicted,
                             "measured": predicted + 3 * rng.standard_normal(),
                             "status": "abstained" if none else "ok",
                             "because": NEVER if none else ""})  # fmt: skip
    return pd.DataFrame(rows)


def strip(rng, couplings, size):
    """Two shapes that move apart the earlier their pair is let go."""
    channels, height, width = size
    columns = LETTING_GO[::2]
    rows = [*couplings, 0.0]
    y, x = np.mgrid[:height, :width] / np.array([height, width]).reshape(2, 1, 1)
    images = np.empty((len(rows), len(columns), 2, channels, height, width), dtype=np.float32)
    for i, g in enumerate(rows):
        for j, step in enumerate(columns):
            apart = 0.5 * (1 - sigmoid(step, 26 - 8 * g, 4))
            for k, side in enumerate((-1, 1)):
                shape = np.exp(-((x - 0.5 - side * apart / 2) ** 2 + (y - 0.5) ** 2) / 0.03)
                noise = 0.05 * rng.standard_normal((channels, height, width))
                images[i, j, k] = np.clip(2 * shape - 1 + noise, -1, 1)
    return {"images": images, "g": np.array(rows), "steps": np.array(columns),
            "control": np.array([False] * len(couplings) + [True])}  # fmt: skip


def claims(hostile):
    rows = [
        (1, "stronger coupling commits earlier (Table 1)",
         "63.6 of 100 steps at g = 0.1, 44.2 at 1",
         "25.2 of 50 at g = 0.1, 18 at 1", "[22.7, 28.2], [15.5, 21]", PAIRS, "yes",
         "the midpoints fall and the intervals do not meet"),
        (2, "coarse structure commits before fine detail", "39 to 41 of 100 steps later",
         "13", "[9, 17.5]", PAIRS, "partly",
         "later, but by fewer steps" + (NASTY if hostile else "")),
        (3, "the gap exists without coupling", "G_int above 1 in the last five blocks", "0.31",
         "[0.01, 0.61]", PAIRS, "no", "no layer leaves its null band"),
        (4, "the gap collapses as g → 1", "superposed at g = 0.9", "", "", PAIRS, "abstains",
         "no layer has a gap to lose"),
    ]  # fmt: skip
    names = ["claim", "statement", "expected", "measured", "interval", "n", "agrees", "because"]
    return pd.DataFrame(rows, columns=names)
