"""Tables that only Track T writes, beside those of the audit."""

from flowscope.lab.claim import CLAIMS_TABLE, INTERVAL, Column, Table

__all__ = ["TABLES"]

TABLES = {
    "track_t": CLAIMS_TABLE,
    "identification": Table(
        purpose="the same weights with finer steps",
        keys=("n",),
        columns=(
            Column("n", "steps per layer; 1 is the model as it is"),
            Column("drift_distance", "relative distance of the drift from that of the finest n"),
            Column(
                "state_distance",
                "distance of the states from those of the finest n, over how far these move",
            ),
            Column("state_to_next", "distance of the states from those of the next n, likewise"),
            Column("drift_to_next", "relative distance of the drift from that of the next n"),
            Column("state_order", "slope of log `state_to_next` in log n; −1 for Euler steps"),
            Column("drift_order", "slope of log `drift_to_next` in log n; −1 for Euler steps"),
            Column("tokens", "number of tokens"),
        ),
    ),
    "output_temperature": Table(
        purpose="mobility, loss and calibration by temperature of the output",
        keys=("temperature",),
        columns=(
            Column("temperature", "τ, by which the logits of the output are divided"),
            Column("loss", "mean loss per token", "nat", INTERVAL),
            Column("mobility", "largest eigenvalue of J over τ, mean over tokens", "", INTERVAL),
            Column("mobility_median", "the same, median over tokens"),
            Column("ece", "expected calibration error of the top token", "", INTERVAL),
            Column("tokens", "number of tokens"),
        ),
    ),
    "bridge": Table(
        purpose="the residual of the bridge equation, of the model, beside a bridge's",
        keys=("data",),
        columns=(
            Column(
                "relative", "`rms` over `scale`: near 0 for a bridge, near 1 where nothing cancels"
            ),
            Column("rms", "root mean square of the residual of the equation"),
            Column("scale", "root of the summed mean squares of the pieces of the equation"),
            Column("centring", "how the function of time c(t) was taken out"),
            Column("status", "ok, or abstained where c(t) was not followed"),
            Column("because", "why it abstained"),
            Column("score_loss", "loss of the score that was learned"),
            Column(
                "score_status",
                "ok, or abstained where the score fails its identities or points are few",
            ),
            Column(
                "score_because", "wrong: which identity fails; too few points: how many are needed"
            ),
            Column("layers", "number of layers"),
            Column("points", "number of states"),
            Column("prompts", "number of prompts"),
            Column("data", "model, or bridge: an exact Gaussian bridge as noisy as the model"),
        ),
        optional=True,
    ),
}
"""Tables of the study by name."""
