r"""Judge whether the motion along depth is transport rather than rotation.

$R_{\rm norm}$ is the share of the (forecastable) motion that no potential explains: 0 for a pure
gradient, 1 for a pure rotation. The claim holds where its interval lies below one half, that is
where more than half of the motion is transport, and fails where it lies above. Two controls stand
beside it: a gradient field with the same second moments and the same noise, which has no rotation,
and that field with a rotation of known share planted in it. Where the planted one is not seen,
nothing is said. A small $R_{\rm norm}$ alone does not make a Schrödinger bridge (errata E47).
"""

from flowscope.evidence.verdicts import Claimed, ends, not_measured
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
    """The mean share of rotation over the central layers, against one half.

    Parameters
    ----------
    share, null
        Mean of R_norm over layers, and the same for gradient fields of the same second moments.
    claim
        What is judged.
    layers, detected
        How many layers were read, and in how many rotation is told from none at the 5 % level.
    planted, seen
        Share that was planted in the gradient field, and the share that was read there.
    """
    if share.status != "ok":
        return not_measured(claim, share.because)
    value = float(share.numbers())
    beside = []
    if not isinstance(null, Unavailable):
        beside.append(f"a gradient field reads {float(null.numbers()):.2f}")
    if not isinstance(seen, Unavailable):
        beside.append(f"with {planted:.2f} planted in it {seen:.2f}")
    told = f"{share.name} {value:.2f} over {layers} central layers"
    told += f" ({'; '.join(beside)})" if beside else ""
    decision, why = _decided(share.interval)
    seen_in = f"; rotation is told from none in {detected} of {layers}"
    if not isinstance(seen, Unavailable) and not seen > planted / 2:
        decision, why = "abstains", "the planted rotation is not seen: too little data for this"
        seen_in = ""
    return Verdict(
        name=claim.name,
        claim=claim.says,
        statistic=share,
        null=null,
        effect=value - (0.0 if isinstance(null, Unavailable) else float(null.numbers())),
        interval=share.interval,
        decision=decision,
        because=f"{told}; {why}" + seen_in,
    )


def _decided(interval: Interval | Unavailable) -> tuple[Decision, str]:
    if isinstance(interval, Unavailable):
        return "abstains", interval.reason
    low, high = ends(interval)
    if high < _HALF:
        return "holds", f"less than half of the motion turns ({low:.2f} … {high:.2f})"
    if low > _HALF:
        return "fails", f"more than half of the motion turns ({low:.2f} … {high:.2f})"
    return "abstains", f"its interval {low:.2f} … {high:.2f} holds one half"
