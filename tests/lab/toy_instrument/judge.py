"""How the toy judges, from the tables alone."""

from flowscope.evidence.verdicts import pure_number
from flowscope.instruments.toy import FAIR
from flowscope.records import Interval, Unavailable, Verdict


def fairness(records):
    """Judge by the interval of the share of heads over all rounds."""
    share = float(records.table("rounds", "share")["share"].mean())
    n = records.settings["measured"]["throws"]
    half = 1.96 * (share * (1 - share) / n) ** 0.5
    interval = Interval(low=share - half, high=share + half, level=0.95, method="normal")
    unfair, fair = abs(share - 0.5) > half, abs(share - 0.5) + half < 0.05
    return [Verdict(
        name=FAIR.name, claim=FAIR.says, interval=interval, effect=share - 0.5,
        statistic=pure_number("heads", share, n=n, estimator="share", seed=0, interval=interval),
        decision="fails" if unfair else "holds" if fair else "abstains",
        null=Unavailable("one half"), because=f"heads in {share:.3f} ± {half:.3f} of {n} throws",
    )]  # fmt: skip
