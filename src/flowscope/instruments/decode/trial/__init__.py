"""Every policy on fresh prompts: published and calibrated thresholds, draft-and-verify."""

from flowscope.instruments.decode.reference import DECIDES
from flowscope.lab.claim import INTERVAL, Claim, Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["ADAPTIVE", "PROMISE", "SECONDS", "STAGE", "TABLES"]

SECONDS = "seconds a prompt"
"""Name of the measurement with the time of a prompt under each policy."""

ADAPTIVE = Claim(
    name="D1",
    title="Adaptive",
    says="certainty tells which passes can be left out",
    asks="Does a policy that looks at the model's certainty save more passes than a fixed number "
    "of positions a pass does, both calibrated to change equally few answers?",
)
PROMISE = Claim(
    name="D2",
    title="Promise",
    says="the calibrated policy keeps its promise",
    asks="On fresh prompts, does the calibrated policy change at most a share alpha of answers?",
)

TABLES = {
    "policies": Table(
        purpose="what every policy costs and changes on the fresh prompts",
        keys=("policy", "kind", "threshold"),
        columns=(
            Column("policy", "name of the policy"),
            Column("kind", "published, calibrated, or another threshold (frontier)"),
            Column("threshold", "its threshold"),
            Column("n", "fresh prompts"),
            Column("passes", "mean passes of the model that a prompt is in"),
            Column("rows", "mean sequences that are run for a prompt"),
            Column("reference_passes", "mean passes of the reference"),
            Column("saved", "mean share of the reference's passes left out", "", INTERVAL),
            Column("same", "share of prompts with the answer of the reference", "", INTERVAL),
            Column(
                "accuracy", "share of right answers; empty where they are unknown", "", INTERVAL
            ),
            Column(
                "certified",
                "strict: the same answer by construction, in single precision, and on every fresh "
                "prompt at these batch sizes; calibrated; none",
            ),
            Column("alpha", "share of answers that may change; empty unless calibrated"),
            Column("delta", "how often a calibration may fail; empty unless calibrated"),
        ),
    ),
    "trial_prompts": Table(
        purpose="what the policy that was judged, and its peer, do on each fresh prompt",
        keys=("prompt",),
        columns=(
            Column("prompt", "number of the fresh prompt, from 0"),
            Column("policy", "calibrated policy with the fewest passes on calibration prompts"),
            Column("reference", "passes of the reference"),
            Column("passes", "passes of the policy"),
            Column("same", "1 if its answer is that of the reference"),
            Column("plain", "passes of a calibrated fixed number of positions a pass"),
            Column("at_once", "1 if filling everything in one pass gives that answer"),
        ),
        optional=True,
    ),
}
"""Tables of the trial."""

STAGE = Stage(
    name="trial",
    home=__name__,
    measure="measure.trial",
    judge="judge.trial",
    claims=(ADAPTIVE, PROMISE),
    settings=DECIDES,
    tables=TABLES,
    uses=("reference", "calibration"),
)
"""The stage: run every policy on the fresh prompts."""
