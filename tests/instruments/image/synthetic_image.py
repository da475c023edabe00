"""A run folder as `flowscope image` would leave it, from a fixed seed.

Distances are a null plus, for part of the times, a little more; errors fall as 1/K; images are
blobs that keep their place after a U-turn as long as little noise was added. Texts include what an
attacker would write.
"""

import numpy as np
import pandas as pd
from tests.instruments.audit.synthetic import number, verdict
from tests.instruments.audit.synthetic_flow import HOSTILE

from flowscope.records import Manifest, Measurement, Run

STEPS, IMAGES, BINS = 20, 512, 64
DOUBLING = (10, 20, 40, 80)
LAMS = (0.0, 0.25, 0.5, 1.0)
COUNTS = (10, 20, 50)
LEVELS = (-4.0, -2.0, 0.0, 2.0, 4.0)
CLASSES = ("sneaker", "coat")
NASTY = "<b>%{x}$</b>" + HOSTILE
UNRESOLVED = "2 of 4 differences are told from 0, 3 are needed"
SINGULAR = "the covariance of the 64 points has rank 3, 8 is needed"
NO_ROTATION = "fewer than 64 images per half"


def write_images(
    folder, *, channels=1, labelled=True, exact=True, hostile=True, study=False, without=(),
    steps=STEPS, images=IMAGES, ends=False, size=16,
):  # fmt: skip
    """Write the run; ``without`` names tables or arrays to leave out.

    Parameters
    ----------
    labelled, exact
        Whether classes were read, and whether there is a closed form.
    ends
        Whether the last time has no noise at all, so that its log snr is infinite.
    """
    rng = np.random.default_rng(31)
    run = Run.create(folder, manifest(hostile, labelled, images, steps))
    clock = times(steps, ends)
    tables = {
        "parity": parity(rng, clock, channels, images),
        "step_budget": step_budget(rng, clock, images),
        "weak_error": weak_error(images),
        "weak_error_slope": slopes(images, hostile),
        "smoothness": smoothness(clock),
        "paths": paths(images),
        "rotation": rotation(rng, clock, images, hostile),
        "information": information(clock, exact, images),
        "uturn": uturn(labelled, exact, images),
        "family": family(rng, labelled, images),
    }
    tables |= {"track_i": claims(hostile)} if study else {}
    for name, frame in tables.items():
        if name not in without:
            run.write_table(name, frame)
    arrays = {"samples": samples(rng, channels, size), "uturn_strip": strip(rng, channels, size)}
    for name, held in arrays.items():
        if name not in without:
            run.write_arrays(name, held)
    absent = [Measurement.abstained(name, NO_ROTATION) for name in ("rotation",) if name in without]
    run.write_measurements([number("parity", 0.021, 0.004), *absent])
    run.write_verdicts(verdicts())
    return run


def manifest(hostile, labelled, images, steps):
    name = "example/dit-fashion" + ("<script>alert(3)</script>" if hostile else "")
    classes = [CLASSES[0], CLASSES[1] + (NASTY if hostile else "")] if labelled else []
    config = {"command": "image", "model": name, "images": images, "steps": steps,
              "doubling": list(DOUBLING), "lams": list(LAMS), "bins": BINS, "rank": 8, "seed": 0,
              "guidance": 1.5, "resamples": 1000}  # fmt: skip
    measured = {"images": images, "steps": steps, "classes": classes,
                "encoder": "bundled encoder, 64 features", "space": "pixels",
                "coordinates": "8 principal axes of the pixels at each time"}  # fmt: skip
    return Manifest(
        config_given={"model": name},
        config_resolved={**config, "measured": measured},
        seeds={"noise": 0},
        versions={"flowscope": "0.5.0"},
        device="cpu",
        wall_time=180.0,
        created_at="2025-03-01T12:00:00+00:00",
    )


def verdicts():
    absent = Measurement.abstained("slope of the mean", UNRESOLVED)
    return [
        verdict("I1: the probability flow and the SDE share their marginals",
                number("largest total variation", 0.021, 0.004), number("null", 0.018, 0.003),
                "holds", "no time lies above its null after correction", 1.17),
        verdict("I2: the sampling error falls at first order", absent, number("slope", -1.0, 0.0),
                "abstains", UNRESOLVED),
        verdict("I3: the learned score is a gradient", number("mean R", 0.034, 0.012),
                number("gradient control", 0.001, 0.003), "fails",
                "R lies above the gradient control at 7 of 10 times", 0.033),
    ]  # fmt: skip


def times(steps, ends):
    """Steps done, the model's own time there and its log snr; the last may be infinite."""
    step = np.arange(1, steps + 1)
    time = 1000 * (1 - step / steps)
    log_snr = np.linspace(-9, 9, steps)
    if ends:
        log_snr[-1] = np.inf
    return pd.DataFrame({"step": step, "time": time, "log_snr": log_snr})


def parity(rng, clock, channels, images):
    names = ["all", *(map(str, range(channels)) if channels > 1 else [])]
    frames = []
    for k, name in enumerate(names):
        own = clock.assign(channel=name)
        late = clock["step"] / len(clock)
        for stem, base in (("tv", 0.018), ("ks", 0.011)):
            null = base * (1 + 0.1 * k) * np.ones(len(clock))
            value = null * (1 + 0.25 * late**4 + 0.06 * rng.standard_normal(len(clock)))
            own[stem] = value
            own[f"{stem}_low"], own[f"{stem}_high"] = value - 0.15 * base, value + 0.2 * base
            own[f"{stem}_null"], own[f"{stem}_null_high"] = null, null * 1.15
            own[f"{stem}_p"] = np.clip(1 - value / (1.3 * null), 0.001, 1)
        frames.append(own.assign(outside=0.001 * late, images=images, bins=BINS))
    return pd.concat(frames, ignore_index=True)


def step_budget(rng, clock, images):
    """An excess of .01 that ends at .05, over a budget of .01."""
    late = clock["step"] / len(clock)
    excess = 0.01 + 0.04 * late**6 + 0.001 * rng.standard_normal(len(clock))
    counted = clock["log_snr"] >= -5
    return clock.assign(
        counted=counted, distance=excess + 0.03, noise=0.02, flow_change=0.006, flow_noise=0.001,
        sde_change=0.007, sde_noise=0.002, budget=0.01, excess=excess,
        excess_low=(excess - 0.008).where(counted), excess_high=(excess + 0.03).where(counted),
        detectable=0.045, outside=0.001, images=images,
    )  # fmt: skip


def weak_error(images):
    rows = []
    for sampler, scale in (("ode", 0.4), ("sde", 0.9)):
        for observable, level in (("mean", 0.3), ("square", -1.0), ("roughness", 0.15)):
            for steps in DOUBLING:
                value = scale * level / steps * (1 + 3 / steps)
                spread = 0.006 if (sampler, observable) == ("sde", "roughness") else 6e-4
                low, high = value - 1.96 * spread, value + 1.96 * spread
                rows.append({"sampler": sampler, "observable": observable, "steps": steps,
                             "difference": value, "standard_error": spread, "low": low,
                             "high": high, "resolved": low * high > 0,
                             "images": images})  # fmt: skip
    return pd.DataFrame(rows)


def slopes(images, hostile):
    rows = []
    for sampler in ("ode", "sde"):
        for k, observable in enumerate(("mean", "square", "roughness")):
            silent = (sampler, observable) == ("sde", "roughness")
            slope = np.nan if silent else -1.05 - 0.02 * k
            rows.append({"sampler": sampler, "observable": observable, "slope": slope,
                         "low": slope - 0.06, "high": slope + 0.07, "method": "jackknife t",
                         "first": DOUBLING[0], "last": DOUBLING[-1], "images": images,
                         "status": "unresolved" if silent else "ok",
                         "because": UNRESOLVED + NASTY * hostile if silent else ""})  # fmt: skip
    return pd.DataFrame(rows)


def smoothness(clock):
    frames = []
    for sampler, base in (("ode", 0.02), ("sde", 0.11)):
        size = base * (0.3 + np.exp(-((clock["log_snr"].clip(-9, 9) - 1) ** 2) / 12))
        frames.append(clock.assign(sampler=sampler, size=size, low=0.95 * size, high=1.06 * size))
    return pd.concat(frames, ignore_index=True)


def paths(images):
    rows = []
    for sampler, length, bend, square, expected in (("ode", 1.9, 1.2, 0.11, 0.0),
                                                    ("sde", 9.4, 5.8, 17.6, 18.0)):  # fmt: skip
        row = {"sampler": sampler, "expected_quadratic": expected, "images": images}
        for name, value in (("variation", length), ("tortuosity", bend), ("quadratic", square)):
            row |= {name: value, f"{name}_low": 0.98 * value, f"{name}_high": 1.02 * value}
        rows.append(row)
    return pd.DataFrame(rows)


def rotation(rng, clock, images, hostile):
    own = clock.iloc[::2].reset_index(drop=True)
    n = len(own)
    share = 0.004 + 0.05 * np.exp(-((own["log_snr"].clip(-9, 9) - 2) ** 2) / 20)
    value = share + 0.004 * rng.standard_normal(n)
    error = 0.02 * rng.standard_normal(n) + 0.03
    frame = own.assign(
        normalised=value, low=value - 0.012, high=value + 0.014, interval_method="t over blocks",
        energy=3 * value, total=3.0, beyond=0.4, represented=0.8, detectable=0.03,
        p_value=np.where(value > 0.02, 0.005, 0.4), gradient_control=0.003 * rng.standard_normal(n),
        planted_control=0.05 + 0.004 * rng.standard_normal(n), planted_share=0.05, degree=2, rank=8,
        points=images // 2, images=images, gradient_error=error, gradient_error_low=error - 0.02,
        gradient_error_high=error + 0.025, status="ok", because="",
        p_adjusted=np.where(value > 0.02, 0.005, 0.4),
    )  # fmt: skip
    numbers = [name for name in frame.columns[list(frame.columns).index("normalised") :]
               if name not in ("status", "because")]  # fmt: skip
    last = frame.index[-1]
    frame.loc[last, [name for name in numbers if name not in ("images", "interval_method")]] = (
        np.nan
    )
    frame.loc[last, ["status", "because"]] = ["abstained", SINGULAR + NASTY * hostile]
    return frame


def information(clock, exact, images):
    snr = clock["log_snr"].clip(-9, 12)
    entropy = np.log(2) * (1 - 1 / (1 + np.exp(-(snr + 1) / 1.2)))
    rate = np.log(2) / 1.2 / (2 + np.exp((snr + 1) / 1.2) + np.exp(-(snr + 1) / 1.2))
    return clock.assign(
        rate=rate, rate_low=rate - 0.01, rate_high=rate + 0.012, entropy=entropy,
        low=(entropy - 0.02).clip(0), high=entropy + 0.03,
        exact=entropy + 0.01 if exact else np.nan, images=images,
    )  # fmt: skip


def uturn(labelled, exact, images):
    snr = np.array(LEVELS)
    same = 0.5 + 0.5 / (1 + np.exp(-(snr + 1) / 1.2))
    like = 1 / (1 + np.exp(-(snr - 1.5) / 1.3))
    absent = np.full(len(snr), np.nan)
    return pd.DataFrame(
        {"time": 500 - 100 * snr, "log_snr": snr, "steps": np.arange(20, 20 - 2 * len(snr), -2),
         "same_class": same if labelled else absent, "low": same - 0.04 if labelled else absent,
         "high": same + 0.03 if labelled else absent, "exact": same + 0.005 if exact else absent,
         "chance": 0.5 if labelled else absent, "correlation_chance": 0.1, "correlation": like,
         "correlation_low": like - 0.05, "correlation_high": like + 0.04, "images": images}
    )  # fmt: skip


def family(rng, labelled, images):
    """More noise helps at many steps and hurts at few."""
    rows = []
    for steps in COUNTS:
        for lam in LAMS:
            accuracy = 0.93 - 0.6 * lam / steps - 0.04 * (1 - lam) + 0.004 * rng.standard_normal()
            tv = 0.02 + 0.9 * lam / steps + 0.02 * (1 - lam) / 2
            known = accuracy if labelled else np.nan
            rows.append({"lam": lam, "steps": steps, "accuracy": known,
                         "accuracy_low": known - 0.012, "accuracy_high": known + 0.012, "tv": tv,
                         "tv_low": tv - 0.003, "tv_high": tv + 0.003, "tv_null": 0.018,
                         "tv_null_high": 0.021, "images": images})  # fmt: skip
    return pd.DataFrame(rows)


def _blobs(rng, places, channels, size):
    """Images with a blob at each place, ``[n, channels, size, size]``."""
    y, x = np.mgrid[:size, :size] / size
    found = []
    for a, b in places:
        shape = 2 * np.exp(-((x - a) ** 2 + (y - b) ** 2) / 0.03) - 1
        tint = np.linspace(1, 0.3, channels).reshape(-1, 1, 1)
        found.append(shape * tint + 0.05 * rng.standard_normal((channels, size, size)))
    return np.clip(found, -1, 1).astype(np.float32)


def samples(rng, channels, size, n=8):
    places = rng.uniform(0.2, 0.8, (n, 2))
    both = [places, np.clip(places + 0.15 * rng.standard_normal((n, 2)), 0.1, 0.9)]
    return {"images": np.stack([_blobs(rng, own, channels, size) for own in both])}


def strip(rng, channels, size, n=8):
    places = rng.uniform(0.2, 0.8, (n, 2))
    kept = 1 / (1 + np.exp(-np.array(LEVELS)))
    rows = [places, *(k * places + (1 - k) * rng.uniform(0.1, 0.9, (n, 2)) for k in kept)]
    return {"images": np.stack([_blobs(rng, own, channels, size) for own in rows]),
            "time": np.array([0, *(500 - 100 * v for v in LEVELS)]),
            "log_snr": np.array([np.inf, *LEVELS])}  # fmt: skip


def claims(hostile):
    rows = [
        ("sampling error", "§8.4", "slope −1.08 on CIFAR-10", "slope −1.05 [−1.11, −0.98]", "yes",
         "the intervals meet" + NASTY * hostile),
        ("rotation of the score", "§8.4", "R .031 [.010, .054] on CIFAR-10", "R .034 [.022, .046]",
         "cannot be told", "R is not comparable across spaces"),
    ]  # fmt: skip
    names = ["item", "where", "says", "measured", "agrees", "rule"]
    return pd.DataFrame(rows, columns=names)
