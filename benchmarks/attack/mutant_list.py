"""The mutants: file below ``src/flowscope``, what is wrong, the old text, the new text, tests."""

from typing import NamedTuple

__all__ = ["MUTANTS", "Mutant"]


class Mutant(NamedTuple):
    """One error in one place."""

    file: str
    error: str
    old: str
    new: str
    tests: tuple[str, ...]


def _m(file: str, error: str, old: str, new: str, *tests: str) -> Mutant:
    return Mutant(file, error, old, new, tuple(f"tests/{test}" for test in tests))


_HODGE = ("flows/hodge", "instruments/audit/test_rotation.py")
MUTANTS: tuple[Mutant, ...] = (
    # named by the issue
    _m("replica/commitment.py", "reach without √(n/(n−1))", "np.sqrt(n / (n - 1)) * t.ppf", "t.ppf",
       "replica/test_commitment.py"),
    _m("flows/score/stein.py", "level not divided among the numbers",
       "t.amax(1), 1 - level", "t[:, 0], 1 - level", "flows/score"),
    _m("flows/hodge/presence.py", "p-value of a layer without its +1",
       "[(1 + int((largest >= t).sum())) / (1 + len(largest)) for t in above]",
       "[int((largest >= t).sum()) / len(largest) for t in above]", *_HODGE),
    # simplex
    _m("simplex/divergence.py", "sign of entropy", "return -(peak * log_peak", "return (peak * log_peak",
       "simplex/test_divergence.py"),
    _m("simplex/divergence.py", "total variation without ½", "return 0.5 * (gap.sum", "return 1.0 * (gap.sum",
       "simplex/test_divergence.py"),
    _m("simplex/locking.py", "tanh(osc/4) for tanh(osc/2)", "torch.tanh(step / 4)", "torch.tanh(step / 2)",
       "simplex/test_locking.py"),
    _m("simplex/mirror.py", "cost with the wrong sign", "(cheapest - c) / tau", "(c - cheapest) / tau",
       "simplex/test_mirror.py"),
    # transport
    _m("transport/line.py", "root of the wrong order", "** (1 / order)).where", "** (1 / 2)).where",
       "transport/test_line.py"),
    _m("transport/rows.py", "floor of mass not asked for", "(kept >= floor) & (apart > 0)", "(apart > 0)",
       "transport/test_rows.py"),
    _m("transport/gaussian.py", "entropy without ½",
       "(delta + epsilon) / epsilon)).sum(-1) / 2", "(delta + epsilon) / epsilon)).sum(-1)",
       "transport/test_gaussian.py"),
    # markov
    _m("markov/irreversibility.py", "currents with the wrong sign", "return flow - flow.mT",
       "return flow.mT - flow", "markov/test_irreversibility.py"),
    _m("markov/relaxation.py", "minorisation at the wrong side", "(1 - pi.amin(-1)[:, 0]) <= tolerance",
       "(1 - pi.amax(-1)[:, 0]) <= tolerance", "markov/test_relaxation.py"),
    _m("markov/sharpness.py", "order for its inverse", "inverse = order.argsort()", "inverse = order",
       "markov/test_sharpness.py"),
    _m("markov/kernels.py", "backward kernel without its diagonal", "apart = W.mT - w[..., None, :]",
       "apart = W.mT - w[..., :, None]", "markov/test_kernels.py"),
    # flows
    _m("flows/variation.py", "concentration without n", "steps.shape[-1] * _total(unit**2)",
       "(steps.shape[-1] - 1) * _total(unit**2)", "flows/test_variation.py"),
    _m("flows/segmentation.py", "shortest segment off by one", ">= max(3.0, L / 6)", "> max(3.0, L / 6)",
       "flows/test_segmentation.py"),
    _m("flows/drift/kernels.py", "distance kernel with the wrong sign", "within_range(-torch.cdist",
       "within_range(torch.cdist", "flows/drift"),
    # replica
    _m("replica/scales.py", "baseline divided by n²", "/ (n * (n - 1)))", "/ (n * n))",
       "replica/test_scales.py"),
    _m("replica/gap.py", "interval one-sided", "student.ppf((1 + level) / 2, pairs - 1)",
       "student.ppf(level, pairs - 1)", "replica/test_gap.py"),
    _m("replica/layer_mean.py", "p-value of the mean gap one-sided", "2 * (1 + min(tails))",
       "1 * (1 + min(tails))", "replica/test_layer_mean.py"),
    _m("replica/modes.py", "energies upside down", "return self.current / self.initial",
       "return self.initial / self.current", "replica/test_modes.py"),
    # evidence
    _m("evidence/bootstrap.py", "Student quantile with n degrees", "stdtrit(units - 1, (1 + level) / 2)",
       "stdtrit(units, (1 + level) / 2)", "evidence/test_bootstrap.py"),
    _m("evidence/random_draws.py", "draws not counted as noise", "np.sqrt(1 + 1 / draws)",
       "np.sqrt(1.0)", "evidence/test_random_draws.py"),
    _m("evidence/decisions.py", "an interval that touches 0 decides", "if low <= 0 <= high:",
       "if low < 0 < high:", "evidence/test_decisions.py"),
    _m("evidence/two_samples.py", "joint intervals at a pointwise quantile",
       'np.quantile(maxima, level, method="higher")', 'np.quantile(maxima, level / 2, method="higher")',
       "evidence/test_two_samples.py"),
    # probes
    _m("probes/heads/curvature.py", "curvature without 1 −", "kappa[told] = 1 - moved[told] / gap",
       "kappa[told] = moved[told] / gap", "probes/test_curvature.py"),
    _m("probes/layers/evolution.py", "distance not squared", "step = row_wasserstein(path[:-1], path[1:], metric, order=2).numpy() ** 2",
       "step = row_wasserstein(path[:-1], path[1:], metric, order=2).numpy()", "probes/test_evolution.py"),
    _m("probes/tap_loop.py", "key of shards misses the prefix",
       "(store.run.folder, store.fingerprint, prefix) for", "(store.run.folder, store.fingerprint) for",
       "probes/test_tap_pass.py"),
    _m("probes/block_callable.py", "first visit for the visit of the layer", "visits[earlier]", "visits[0]",
       "probes/test_live_block.py"),
    # tap
    _m("tap/dispatch.py", "junction leaves too late", "if junction.users == 0 and", "if junction.users < 0 and",
       "tap/test_threads.py"),
    _m("tap/forward.py", "calls outside blocks not counted", "            self._outside += 1\n", "",
       "tap/test_events.py"),
    _m("tap/dispatch.py", "calls of other threads not counted", "            self.foreign += 1\n", "",
       "tap/test_threads.py"),
    # records
    _m("records/tables.py", "escapes not taken back", "[_unescaped(cell) for cell in cells]", "list(cells)",
       "records/test_tables.py"),
    _m("records/sharding.py", "shard key misses the fingerprint", "fingerprint=self.fingerprint)",
       'fingerprint="same")', "records/test_sharding.py"),
    _m("records/tables.py", "missing word may be a cell", "word not in present)", "word or word not in present)",
       "records/test_tables.py"),
    # lab
    _m("lab/running/identity.py", "identity misses the commit", '        "commit": commit,\n', "",
       "lab/test_run_folders.py"),
    _m("lab/running/lock.py", "silence not waited for", "now - self.touched > SILENCE", "now - self.touched > 0",
       "lab/test_lock.py"),
    _m("lab/running/identity.py", "kind of device not told apart", 'device.partition(":")[0]', '"any"',
       "lab/test_run_folders.py"),
    # report
    _m("report/numerals.py", "sign of infinity", '"∞" if value > 0 else', '"∞" if value < 0 else',
       "report/test_numerals.py"),
    _m("report/escaping.py", "shortened by one too few", "shown[: most - 1]", "shown[:most]",
       "report/test_escaping.py"),
    _m("report/drawing/colours.py", "luminance without its curve", "c / 12.92 if c <= 0.04045", "c if c <= 9",
       "report/test_colours.py"),
    # instruments
    _m("instruments/audit/variation/judge.py", "gate at < for ≤",
       'return "holds" if self.relative_variation <= self.threshold',
       'return "holds" if self.relative_variation < self.threshold', "instruments/test_levels_of_judges.py"),
    _m("instruments/audit/rotation/judge.py", "layers counted at p < .5", "LEVEL = 0.05\n", "LEVEL = 0.5\n",
       "instruments/audit/test_rotation.py"),
    _m("instruments/audit/adequacy/judge.py", "copies of prompts forgiven",
       "if same > _MOST_COPIES * prompts:", "if same > 2 * prompts:", "instruments/audit/test_forecast_rule.py"),
    _m("instruments/heads/geometry/judge.py", "strength of M2 at half", "ONE_WAY_THRESHOLDS = (0.05, 0.15, 0.4)",
       "ONE_WAY_THRESHOLDS = (0.02, 0.07, 0.2)", "instruments/test_levels_of_judges.py"),
    _m("instruments/sync/internal_gap/judge.py", "layers seen at p ≤ .5", "_LEVEL = 0.05\n", "_LEVEL = 0.5\n",
       "instruments/test_levels_of_judges.py"),
    _m("instruments/sync/commitment/judge.py", "guard at half of the couplings gone",
       "if 2 * lacking < couplings or", "if lacking < couplings or", "instruments/sync/test_sync_rules.py"),
    _m("instruments/image/step_sizes/judge.py", "slope near −1 on one side only",
       '(read["low"] >= -1 - _NEAR) & (read["high"]', '(read["high"]', "instruments/test_levels_of_judges.py"),
    _m("instruments/image/rotation/judge.py", "rotation called at p ≤ .5", "LEVEL = 0.05\n", "LEVEL = 0.5\n",
       "instruments/test_levels_of_judges.py"),
    _m("instruments/image/uturn/measure.py", "chance from pairs of one side",
       "(before[:, None] == after[None])", "(before[:, None] == before[None])",
       "instruments/image/test_image_tables.py"),
)  # fmt: skip
