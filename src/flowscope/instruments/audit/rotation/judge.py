r"""Judge whether the motion along depth is transport rather than rotation.

$R_{\rm norm}$ is the share of the (forecastable) motion that no potential explains: 0 for a pure
gradient, 1 for a pure rotation. The claim holds where its interval lies below one half, that is
where more than half of the motion is transport, and fails where it lies above. There are two
controls: a gradient field with the same second moments and the same noise, which has no rotation,
and that field with a rotation of known share planted in it. Where the planted
rotation is not detected, the claim abstains. A small $R_{\rm norm}$ alone does not make a
Schrödinger bridge (errata E47).
"""

from flowscope.evidence.verdicts import Claimed, ends, no_verdict, not_measured
from flowscope.records import Decision, Interval, Measurement, Unavailable, Verdict

__all__ = ["judge_rotation"]

_HALF = 0.5


def judge_rotation(
    share: Measurement,
    null: Measurement | Unavailable,
    *,
    claim: Claimed,
    layers: int,
    detected: int,
    planted: float,
    seen: float | Unavailable,
) -> Verdict:
    """Judge the mean share of rotation over the central layers against one half.

    Parameters
    ----------
    share, null
        Mean of R_norm over layers, and the same for gradient fields of the same second moments.
    claim
        What is judged.
    layers, detected
        Number of layers, and in how many rotation differs from zero at the 5 % level.
    planted, seen
        Share that was planted in the gradient field, and the share that was measured there.
    """
    if share.status != "ok":
        return not_measured(claim, share.because)
    value = float(share.numbers())
    controls = []
    if not isinstance(null, Unavailable):
        controls.append(f"control without rotation: {float(null.numbers()):.2f}")
    if not isinstance(seen, Unavailable):
        controls.append(f"control with {planted:.2f} planted: {seen:.2f}")
    reason = f"{share.name}, the share of rotation, is {value:.2f} over {layers} central layers"
    reason += f" ({'; '.join(controls)})" if controls else ""
    decision, why = _decided(share.interval)
    detections = f"; rotation differs from zero (5 % level) in {detected} of {layers} layers"
    if not isinstance(seen, Unavailable) and not seen > planted / 2:
        decision = "abstains"
        why = no_verdict("the planted rotation is not detected: there is too little data")
        detections = ""
    return Verdict(
        name=claim.name,
        claim=claim.says,
        statistic=share,
        null=null,
        effect=value - (0.0 if isinstance(null, Unavailable) else float(null.numbers())),
        interval=share.interval,
        decision=decision,
        because=f"{reason}; {why}" + detections,
    )


def _decided(interval: Interval | Unavailable) -> tuple[Decision, str]:
    if isinstance(interval, Unavailable):
        return "abstains", no_verdict(interval.reason)
    low, high = ends(interval)
    if high < _HALF:
        return "holds", f"the interval {low:.2f} … {high:.2f} lies below one half"
    if low > _HALF:
        return "fails", f"the interval {low:.2f} … {high:.2f} lies above one half"
    return "abstains", no_verdict(f"the interval {low:.2f} … {high:.2f} contains one half")
