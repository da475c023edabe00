"""A run folder as a depth audit of a 30-layer language model would leave it, from a fixed seed.

The sizes follow a small real model: jumps at layers 1 and 30, one quiet segment between, tokens
that lock late. Texts include what an attacker would write into a prompt.
"""

import numpy as np
import pandas as pd
from tests.instruments.audit.synthetic_flow import HOSTILE, flow_tables, study_tables

from flowscope.records import Interval, Manifest, Measurement, Run, Unavailable, Verdict

LAYERS, HEADS, POSITIONS, PROMPTS = 30, 9, 48, 3
NASTY = [
    HOSTILE,
    "<!--",
    "\u2028",
    "%{x}",
    "<b>bold</b>",
    "<img src=x onerror=alert(2)>",
    "$\\frac$",
]
STORY = (
    "The tower was built in 1889 by a group of engineers who had never worked together before , "
    "and its first visitors came from every part of the country to see what iron could do . "
    "By the end of the year nearly two million people had climbed the stairs ."
)
TEXT = STORY.split()
METHOD = "percentile bootstrap over prompts, B = 1000"


def write_run(folder, *, without=(), abstained=False, hostile=True, study=True):
    """Write the run; ``without`` names tables to leave out, ``study`` adds those of a study."""
    rng = np.random.default_rng(7)
    run = Run.create(folder, manifest(hostile))
    layers = layer_table(rng, abstained)
    tables = {
        "layers": layers,
        "segments": segment_table(abstained),
        "jumps": jump_table(layers),
        "locking": locking_table(rng),
        "locking_depth": locking_depth_table(rng),
        **locking_slope_tables(),
        "tokens": token_table(rng, hostile),
        "heads": head_table(rng),
        "simplex_path": path_table(hostile),
    }
    rng = np.random.default_rng(11)
    tables |= {
        "curvature": curvature_table(rng, hostile),
        "curvature_response": response_table(rng),
        "evi": evi_table(rng),
    }
    tables |= {} if abstained else flow_tables(LAYERS, hostile)
    tables |= study_tables(hostile) if study else {}
    for name, frame in tables.items():
        if name not in without:
            run.write_table(name, frame)
    run.write_verdicts(verdicts(abstained))
    return run


def manifest(hostile):
    name = "example/SmallLM-135M" + ("<script>alert(3)</script>" if hostile else "")
    config = {"model": name, "texts": "wikitext-2 test", "prompts": 32, "threshold": 0.15}
    return Manifest(
        config_given={"model": name},
        config_resolved={**config, "lens": {"temperature": 1.0, "dtype": "float32"}},
        seeds={"bootstrap": 7, "random_weights": 11},
        versions={"flowscope": "0.1.0", "torch": "2.13.0", "xarray": Unavailable("not installed")},
        device="cpu",
        weight_hashes={"model.safetensors": "5f" * 32},
        data_hashes={"prompts": "a1" * 32},
        wall_time=81.4,
        created_at="2025-03-01T12:00:00+00:00",
    )


def layer_table(rng, abstained):
    layer = np.arange(LAYERS + 1)
    step = 0.028 * np.exp(0.35 * rng.standard_normal(LAYERS + 1))
    step[[1, 2, 25, 30]] = 3.35, 0.135, 0.223, 0.856
    tv = np.clip(0.16 * np.exp(0.3 * rng.standard_normal(LAYERS + 1)), 0, 1)
    tv[[1, 2, 30]] = 0.997, 0.62, 0.61
    step[0] = tv[0] = np.nan
    entropy = np.interp(layer, [0, 1, 4, 15, 26, 30], [10.6, 9.1, 7.2, 6.3, 4.1, 2.4])
    agreement = np.interp(layer, [0, 5, 15, 22, 27, 29, 30], [0.01, 0.05, 0.08, 0.22, 0.5, 0.71, 1])
    segment = np.select([layer <= 1, layer == 2, layer <= 24, layer < 30], [0, 1, 2, 3], 4)
    ok = np.isin(segment, [2]) & (not abstained)
    frame = {"layer": layer}
    for name, values in (("relative_step", step), ("total_variation", tv), ("entropy", entropy),
                         ("agreement", agreement)):  # fmt: skip
        spread = 1 + 0.06 + 0.06 * rng.random(LAYERS + 1)
        frame |= {name: values, f"{name}_low": values / spread, f"{name}_high": values * spread}
    frame["agreement_high"] = np.minimum(frame["agreement_high"], 1)
    frame |= {"p_max": 1 - 0.9 * entropy / 10.6, "tail_mass": 0.9 * entropy / 10.6}
    frame |= {"mobility_frobenius": 0.3 * np.exp(-((layer - 24) ** 2) / 80), "segment": segment}
    frame["segment_kind"] = np.where(np.isin(segment, [0, 4]), "jump", "segment")
    frame["status"] = np.where(ok, "ok", "abstained")
    return pd.DataFrame(frame)


def segment_table(abstained):
    value = [3.35, 0.135, 0.41 if abstained else 0.0231, 0.094, 0.856]
    reason = "relative variation {} {} the threshold 0.15"
    because = ["a single step is a jump, not a segment", "shorter than 5 layers",
               reason.format(value[2], "above" if abstained else "below"),
               "shorter than 5 layers after the cut at 25", "a single step is a jump"]  # fmt: skip
    decision = ["abstains"] * 5
    decision[2] = "fails" if abstained else "holds"
    return pd.DataFrame(
        {
            "segment": range(5),
            "kind": ["jump", "jump", "segment", "jump", "jump"],
            "first_layer": [1, 2, 3, 25, 30],
            "last_layer": [1, 2, 24, 29, 30],
            "relative_variation": value,
            "low": [3.1, 0.12, value[2] * 0.9, 0.08, 0.8],
            "high": [3.6, 0.15, value[2] * 1.1, 0.11, 0.9],
            "share_above": [1.0, 0.4, 0.01, 0.2, 1.0],
            "threshold": [0.15] * 5,
            "random_weights": [np.nan, np.nan, 0.2, 0.2, np.nan],
            "linear_interpolation": [np.nan, np.nan, 0.0029, 0.003, np.nan],
            "concentration": [1.0, 1.0, 1.31, 1.8, 1.0],
            "tortuosity": [1.0, 1.0, 4.2, 2.2, 1.0],
            "mass_residual": [2.1e-13] * 5,
            "mass_bound": [4.9e-13] * 5,
            "decision": decision,
            "because": because,
        }
    )


def jump_table(layers):
    at = [1, 25, 30]
    return pd.DataFrame(
        {
            "layer": at,
            "relative_step": layers["relative_step"][at].to_numpy(),
            "total_variation": layers["total_variation"][at].to_numpy(),
            "velocity_change": [1.02, 0.64, 1.31],
        }
    )


def locking_table(rng):
    edges = np.logspace(-6, 0, 19)
    centre = np.sqrt(edges[:-1] * edges[1:])
    median = 0.4 * centre**0.93 * np.exp(0.08 * rng.standard_normal(18))
    bound = np.minimum(1, centre * 900 / (1 + centre * 899))
    return pd.DataFrame(
        {
            "tail_mass_low": edges[:-1],
            "tail_mass_high": edges[1:],
            "n": np.linspace(60, 6000, 18).astype(int),
            "tv_median": median,
            "tv_q25": median / 2.1,
            "tv_q75": median * 1.9,
            "bound_median": bound,
            "informative_share": np.clip(1 - bound**2, 0, 1),
        }
    )


def locking_slope_tables():
    """Slopes by layer and the parts of the prompts, from a generator of their own."""
    rng = np.random.default_rng(13)
    layer = np.arange(1, LAYERS + 1)
    slope = -0.3 * np.exp(-layer / 4) + 0.02 * rng.standard_normal(LAYERS)
    mixed = layer > 10
    slopes = pd.DataFrame(
        {
            "layer": layer,
            "slope": slope,
            "slope_low": slope - 0.05,
            "slope_high": slope + 0.06,
            "size_slope": 0.3 * slope,
            "contribution": np.where(mixed, slope / mixed.sum(), np.nan),
            "tokens": 768,
            "decided": layer / 60,
            "log_tail_sd": 0.2 + layer / 20,
            "mixed": mixed,
            "steps": 2048,
            "exceeded": 0,
        }
    )
    squares = rng.uniform(300, 600, 32)
    products = squares * (0.2 + 0.05 * rng.standard_normal(32))
    prompts = pd.DataFrame(
        {
            "prompt": range(32),
            "tokens": 24,
            "steps": 480,
            "freedom": 460,
            "squares": squares,
            "products": products,
            "size_products": 0.3 * products,
            "pseudo_value": products / squares,
        }
    )
    return {"locking_slopes": slopes, "locking_prompts": prompts}


def locking_depth_table(rng):
    weight = np.exp(np.linspace(-3.2, 0, LAYERS + 1)) * (0.8 + 0.4 * rng.random(LAYERS + 1))
    count = (8192 * weight / weight.sum()).astype(int)
    share = count / count.sum()
    return pd.DataFrame({"layer": range(LAYERS + 1), "count": count, "share": share})


def token_table(rng, hostile):
    rows = []
    for prompt in range(PROMPTS):
        tokens = [(" " if k else "") + TEXT[(k + 9 * prompt) % len(TEXT)] for k in range(POSITIONS)]
        if hostile and prompt == 0:
            tokens[2 : 2 + len(NASTY)] = NASTY
        for position in range(POSITIONS):
            decided = rng.integers(14, 31)
            for layer in range(LAYERS + 1):
                away = layer - decided
                late = tokens[(position + 1) % POSITIONS]
                guess = " " + TEXT[(7 * layer + position) % len(TEXT)]
                noise = 0.8 + 0.4 * rng.random()
                rows.append(
                    {
                        "prompt": prompt,
                        "position": position,
                        "token": tokens[position],
                        "layer": layer,
                        "top_token": late if away >= 0 else guess,
                        "mobility_frobenius": min(0.5, 0.44 * np.exp(-(away**2) / 30) * noise),
                        "entropy": max(0.02, (5.2 - 0.45 * away) * noise if away > -9 else 9.6),
                        "p_max": 1 / (1 + np.exp(-0.6 * away)),
                        "total_variation": np.nan
                        if layer == 0
                        else np.exp(-abs(away) / 3) * noise / 1.3,
                    }
                )
    return pd.DataFrame(rows)


def head_table(rng):
    grid = pd.MultiIndex.from_product([range(1, LAYERS + 1), range(HEADS)], names=["layer", "head"])
    share = np.clip(rng.beta(2.4, 2.0, len(grid)), 0.01, 0.99)
    frame = grid.to_frame(index=False)
    frame["entropy_share"] = share
    frame["low"], frame["high"] = share * 0.94, np.minimum(share * 1.06, 1)
    frame["random_weights"] = 0.985 + 0.01 * rng.random(len(grid))
    frame["collapsed"] = share < 0.09
    return frame


def curvature_table(rng, hostile):
    grid = pd.MultiIndex.from_product([range(1, LAYERS + 1), range(HEADS)], names=["layer", "head"])
    frame = grid.to_frame(index=False)
    frame["kappa"] = np.clip(0.5 + 0.15 * rng.standard_normal(len(grid)), 0.05, 0.98)
    frame.loc[3, "kappa"] = -0.2
    frame["low"], frame["high"] = frame["kappa"] - 0.04, frame["kappa"] + 0.03
    frame["keys_permuted"] = frame["kappa"] + 0.02 * rng.standard_normal(len(grid))
    frame["random_weights"] = 0.97
    frame["pairs"], frame["left_out"], frame["kept_mass"] = 230, 26, 0.12
    frame["because"] = ""
    pinned = "in 97% of its pairs both rows look at " + (HOSTILE if hostile else "one key")
    silent = np.arange(len(grid)) % 37 == 5
    frame.loc[silent, "because"] = pinned
    frame["status"] = np.where(silent, "abstained", "ok")
    frame.loc[silent, ["kappa", "low", "high", "keys_permuted"]] = np.nan
    return frame


def response_table(rng):
    rows = []
    for kind, settings, slope in (
        ("key_norm", (0.0, 0.5, 1.0, 1.5, 2.0), -0.04),
        ("temperature", (0.5, 0.71, 1.0, 1.41, 2.0), 0.25),
    ):
        for layer in [np.nan, *range(1, LAYERS + 1)]:
            shift = 0.0 if np.isnan(layer) else 0.1 * rng.standard_normal()
            for setting in settings:
                change = slope * (setting - 1)
                kappa = 0.5 + shift + change
                rows.append(
                    {
                        "kind": kind,
                        "setting": setting,
                        "scope": "all" if np.isnan(layer) else "layer",
                        "layer": layer,
                        "kappa": kappa,
                        "low": kappa - 0.02,
                        "high": kappa + 0.02,
                        "change": change,
                        "change_low": change - 0.01,
                        "change_high": change + 0.01,
                        "pairs": 900,
                        "prompts": 8,
                    }
                )
    return pd.DataFrame(rows)


def evi_table(rng):
    step = np.arange(1, LAYERS + 1)
    share = np.clip(step / 60 + 0.05 * rng.standard_normal(LAYERS), 0, 1)
    frame = {"step": step, "slack": share - 0.6, "progress": share / 2}
    for name, values in (("share", share), ("share_shuffled", 0.25 + 0 * share),
                         ("share_straight", step / 30)):  # fmt: skip
        frame |= {name: values, f"{name}_low": values * 0.8, f"{name}_high": values * 1.1}
    frame = pd.DataFrame(frame)
    silent = (step < 3) | (step > 24)
    numbers = [name for name in frame.columns if name != "step"]
    frame.loc[silent, numbers] = np.nan
    frame["tokens"], frame["left_out"] = 31, 1
    frame["because"] = np.where(silent, "P0: a jump", "")
    frame["status"] = np.where(silent, "abstained", "ok")
    return frame


def path_table(hostile):
    t = np.linspace(0, 1, LAYERS + 1)
    second = 0.42 * np.exp(-((t - 0.66) ** 2) / 0.02)
    first = np.clip(1 / (1 + np.exp(-22 * (t - 0.82))) * 0.93, 0, 1 - second)
    return pd.DataFrame(
        {
            "layer": range(LAYERS + 1),
            "first": first,
            "second": second,
            "rest": 1 - first - second,
            "first_token": " Paris",
            "second_token": "<b>%{a}</b>" if hostile else " London",
            "prompt": 0,
            "position": 11,
        }
    )


def number(name, value, spread, unit="1"):
    low, high = sorted((value - spread, value + spread))
    return Measurement(
        name=name, values=value, unit=unit, n=32, estimator="median over tokens",
        dtype="float64", seed=7, interval=Interval(low=low, high=high, level=0.95, method=METHOD),
    )  # fmt: skip


def verdict(claim, statistic, null, decision, because, effect=None):
    absent = Unavailable("the statistic gave no number")
    spread = absent
    if effect:
        low, high = sorted((effect * 0.9, effect * 1.1))
        spread = Interval(low=low, high=high, level=0.95, method=METHOD)
    name, _, claim = claim.partition(": ")
    return Verdict(name=name, claim=claim, statistic=statistic, null=null, effect=effect or absent,
                   interval=spread, decision=decision, because=because)  # fmt: skip


def verdicts(abstained):
    gate = "P0: the depth path varies little within a segment"
    size = "relative variation of the longest segment"
    null = number("random weights", 0.2, 0.014)
    if abstained:
        reason = "no segment passed the gate (smallest relative variation 0.41, threshold 0.15)"
        rest = [
            verdict(f"{name}: a claim that needs a segment", Measurement.abstained("none", reason),
                    Unavailable("not measured"), "abstains", reason)
            for name in ("P1", "P2", "P3", "P4", "P4r")
        ]  # fmt: skip
        above = "relative variation 0.41 is above the threshold 0.15 in the only segment"
        return [verdict(gate, number(size, 0.41, 0.03), null, "fails", above, 2.05), *rest]
    curved = "the pairs within common support were fewer than 200 in 21 of 22 layers"
    return [
        verdict(gate, number(size, 0.0231, 0.0018), null, "holds",
                "layers 3–24: relative variation 0.0231 is below the threshold 0.15", 0.115),
        verdict("P1: a continuous flow fitted on some prompts predicts the layers of others",
                number("skill of the flow, onward", 0.28, 0.03),
                number("skill of persistence", 0.0, 0.0), "holds",
                "held-out skill over persistence +28.0% onward; better than standing still", 0.28),
        verdict("P2: locked tokens move less", number("locking slope", 0.2, 0.04),
                number("slope of steps that do not know their token", 0.0, 0.0), "holds",
                "a layer moves a nearly decided output less far", 0.2),
        verdict("P3: attention contracts neighbouring rows", Measurement.abstained("κ", curved),
                Unavailable("not measured"), "abstains", curved),
        verdict("P4: most of the motion is transport, not rotation",
                number("1 − G/E, the most that may rotate", 0.31, 0.05),
                number("one half", 0.5, 0.0), "holds",
                "at most 31 % of the motion rotates over 9 central layers", 0.19),
        verdict("P4r: part of the motion is a rotation", number("R_norm", 0.18, 0.05),
                number("R_norm of nine log-sum-exp gradients", 0.02, 0.004), "holds",
                "R_norm 0.18 over 9 central layers; gradients read 0.02", 0.16),
    ]  # fmt: skip
