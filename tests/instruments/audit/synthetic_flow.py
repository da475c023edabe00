"""Tables of P1, P4 and a study as a run of the 30-layer model would leave them."""

import numpy as np
import pandas as pd

HOSTILE = "</script><script>alert(1)</script>"
SEGMENTS = ((3, 12), (14, 24))
KINDS = ("ridge", "neighbours", "perceptron")
TOKENS, FREE = 512, 3


def flow_tables(layers, hostile):
    """Tables of P1 and P4; ``hostile`` puts markup wherever a table holds text."""
    rng = np.random.default_rng(19)
    text = HOSTILE if hostile else "the state left every bound"
    return {
        "adequacy": adequacy_table(rng),
        "adequacy_skill": skill_table(),
        "adequacy_clouds": cloud_table(rng),
        "drifts": drift_table(rng, text),
        "overlay": overlay_table(rng),
        "budget": budget_table(rng),
        "depth_loss": depth_loss_table(layers),
        "rotation": rotation_table(rng, text),
    }


def study_tables(hostile):
    """Tables that only a study writes."""
    return {
        "track_t": claim_table(HOSTILE if hostile else ""),
        "identification": identification_table(),
        "output_temperature": temperature_table(),
    }


def adequacy_table(rng):
    rows = []
    for first, last in SEGMENTS:
        for horizon in ("one layer", "onward"):
            names = ["flow", *KINDS, "mean", "scaled", "lookup", "persistence", "floor", "line"]
            for name in names[: -1 if horizon == "one layer" else None]:
                share = {"flow": 0.72, "ridge": 0.72, "neighbours": 0.86, "perceptron": 0.78,
                         "mean": 0.94, "scaled": 0.9, "lookup": 0.92, "persistence": 1.0,
                         "floor": 0.31, "line": 0.55}[name]  # fmt: skip
                for k in range(last - first + 1):
                    moved = 0.16 if horizon == "one layer" else 0.62 * (1 - np.exp(-(k + 1) / 4))
                    tv = share * moved * np.exp(0.04 * rng.standard_normal())
                    rows.append(
                        {
                            "first_layer": first,
                            "last_layer": last,
                            "layer": first + k,
                            "horizon": horizon,
                            "forecast": name,
                            "tv": tv,
                            "low": tv * 0.93,
                            "high": tv * 1.08,
                            "skill": 1 - share,
                            "skill_low": 1 - share - 0.03,
                            "skill_high": 1 - share + 0.03,
                            "tokens": TOKENS,
                        }
                    )
    return pd.DataFrame(rows)


def skill_table():
    shares = {"still": 1.0, "mean_drift": 0.94, "scaled_drift": 0.9, "lookup": 0.92,
              "flow": 0.72, "floor": 0.31, "flow_half": 0.78, "flow_shuffled": 0.74}  # fmt: skip
    rows = [
        {"first_layer": first, "last_layer": last, "prompt": prompt, "tokens": 16}
        | {name: share * (40 + prompt) for name, share in shares.items()}
        for first, last in SEGMENTS
        for prompt in range(32)
    ]
    return pd.DataFrame(rows)


def cloud_table(rng):
    rows = []
    for first, last in SEGMENTS:
        for name, size in (("flow", 0.08), ("persistence", 0.2)):
            for layer in range(first, last + 1):
                ks = size * (1 + 0.1 * rng.random())
                rows.append({"layer": layer, "forecast": name, "ks": ks, "ks_low": ks * 0.8,
                             "ks_high": ks * 1.3, "mmd": ks / 9, "mmd_low": -0.001,
                             "mmd_high": ks / 5})  # fmt: skip
    return pd.DataFrame(rows)


def drift_table(rng, text):
    rows = []
    for first, last in SEGMENTS:
        for half in (0, 1):
            for kind, error in zip(KINDS, (0.81, 0.93, 0.86), strict=True):
                stopped = kind == "neighbours" and first == 14
                rows.append(
                    {
                        "first_layer": first,
                        "last_layer": last,
                        "half": half,
                        "drift": kind,
                        "relative_error": error + 0.01 * rng.standard_normal(),
                        "setting": {"ridge": "strength 0.1", "neighbours": "16 neighbours",
                                    "perceptron": "41 epochs"}[kind],
                        "status": "stopped" if stopped else "ok",
                        "because": text if stopped else "",
                        "chosen": kind == "ridge",
                        "coordinates": 32,
                        "variance_held": 0.87 if first == 3 else 0.91,
                        "route": "gram",
                    }
                )  # fmt: skip
    return pd.DataFrame(rows)


def overlay_table(rng):
    layer = np.concatenate([np.arange(first, last + 1) for first, last in SEGMENTS])
    tv = 0.16 * np.exp(0.2 * rng.standard_normal(len(layer)))
    return pd.DataFrame(
        {
            "layer": layer,
            "tv": tv,
            "first_order": tv * 1.1,
            "restricted": np.clip(tv * 3, 0, 1),
            "budget": 0.9997,
            "budget_informative": 0.02,
            "restricted_informative": 0.94,
            "exceeded": 0,
            "tokens": TOKENS,
        }
    )


def budget_table(rng):
    n = 2 * 5 * TOKENS
    largest = 2 + 3 * rng.random(n)
    squares = largest**2 * (4 + rng.random(n))
    budget = 0.05 * largest + 0.001 * squares
    error = np.clip(budget * np.exp(0.35 * rng.standard_normal(n) - 0.1), 0, 1)
    return pd.DataFrame({"segment": np.repeat([0, 1], n // 2), "prompt": np.arange(n) % 32,
                         "error": error, "largest": largest, "squares": squares,
                         "budget": budget})  # fmt: skip


def depth_loss_table(layers):
    removed = np.arange(layers + 1)
    increase = 0.002 * removed + np.where(removed > FREE, 0.03 * np.abs(removed - FREE) ** 1.6, 0)
    mobility = 0.18 + 0.25 * np.exp(-((removed - 9) ** 2) / 40)
    columns = {"loss": 3.1 + increase, "increase": increase, "mobility": mobility}
    frame = {"removed": removed, "layer": layers - removed}
    for name, values in columns.items():
        frame |= {name: values, f"{name}_low": values * 0.93, f"{name}_high": values * 1.07}
    return pd.DataFrame({**frame, "tokens": 1024, "free": removed <= FREE})


def rotation_table(rng, text):
    layer = np.arange(9, 20)
    layer = layer[layer != 13]
    share = np.clip(0.18 + 0.07 * rng.standard_normal(len(layer)), 0.02, 0.6)
    frame = pd.DataFrame({"layer": layer, "normalised": share, "low": share - 0.08,
                          "high": share + 0.1})  # fmt: skip
    frame["control"], frame["control_least"], frame["control_most"] = 0.02, 0.005, 0.04
    frame["margin"], frame["total"], frame["energy"] = 0.02, 40.0, share * 28
    shares = {"represented": 0.7, "rotation_share": share * 0.7, "gradient_share": 0.65 - share / 2}
    for name, values in shares.items():
        frame[name], frame[f"{name}_low"], frame[f"{name}_high"] = (
            values, values - 0.05, values + 0.05)  # fmt: skip
    frame["p_value"], frame["p_adjusted"] = 0.01, np.where(share > 0.15, 0.02, 0.4)
    frame["coordinates"], frame["degree"], frame["functions"], frame["potentials"] = 8, 2, 45, 368
    frame["tokens"], frame["prompts"] = 2048, 32
    frame["status"], frame["because"] = "ok", ""
    frame.loc[1, "because"] = text
    frame.loc[4, ["normalised", "low", "high"]] = np.nan
    frame.loc[4, ["status", "because"]] = "abstained", f"nothing can be forecast: {text}"
    return frame


def claim_table(text):
    no_step = "no step exceeds it; a bound above .99 cannot be exceeded and is no evidence"
    rows = [
        ("P0 gate", "N.6", "S̄_L ≤ .15 with continuity residual below 1e-14; failures abstain",
         "S̄ = 0.023 (0.021 … 0.025); layers 3–24: relative variation 0.0231 is below 0.15",
         "yes", "some segment passes; 1e-14 is out of reach and √V·eps stands for it"),
        ("P1 budget", "M.6, eq 19", "realised layerwise TV does not exceed the drift budget",
         "0 exceedances; the bound says something in 2% of steps", "cannot be told", no_step),
        ("P1 flow", "Thm 5.6, 8.1", f"layers follow a probability-flow ODE {text}",
         "skill over persistence +28.0% (+25.1% … +31.2%), held-out", "yes",
         f"interval of the skill above 0 {text}"),
        ("P4 rotation", "8.2",
         "mean R̂ over 10 central layers 1.096e-7 (3.5e-8 … 2.2e-7): bridge-aligned",
         "mean R̂ 7.2 over 9 layers; R_norm 0.18 (0.11 … 0.27)", "no",
         "R itself is not comparable between coordinates; R_norm below 0.05"),
        ("identification", "Assumption 5.1 (4)", "drifts estimated from layers converge",
         "order −0.61 of the drift, −0.93 of the states", "yes", "slope below −.5"),
        ("temperature, calibration", "L.2", "temperature scaling improves calibration",
         f"not measured on this model {text}", "not measured", "loss gained above 0"),
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["item", "where", "says", "measured", "agrees", "rule"])


def identification_table():
    n = np.array([1, 2, 4, 8])
    to_next = np.append(0.21 * n[:-1] ** -0.93, np.nan)
    drift = np.append(0.4 * n[:-1] ** -0.61, np.nan)
    return pd.DataFrame({"n": n, "drift_distance": [0.7, 0.35, 0.15, 0.0],
                         "state_distance": [0.37, 0.18, 0.06, 0.0], "state_to_next": to_next,
                         "drift_to_next": drift, "state_order": -0.93, "drift_order": -0.61,
                         "tokens": 256})  # fmt: skip


def temperature_table():
    tau = np.array([0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0])
    frame = {"temperature": tau}
    columns = {"loss": 3.1 + 0.9 * np.log(tau / 1.1) ** 2, "mobility": 0.2 + 0.1 * np.sin(2 * tau),
               "ece": 0.02 + 0.12 * np.abs(np.log(tau / 1.1))}  # fmt: skip
    for name, values in columns.items():
        frame |= {name: values, f"{name}_low": values * 0.97, f"{name}_high": values * 1.03}
    return pd.DataFrame({**frame, "mobility_median": 0.2, "tokens": 4096})
