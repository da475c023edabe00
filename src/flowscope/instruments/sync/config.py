"""Settings of the synchronisation of coupled replicas."""

from flowscope.lab.config import MOST_DRAWS, MOST_INPUTS, Config, setting, shared_setting

__all__ = ["ENOUGH_PAIRS", "SyncConfig"]

ENOUGH_PAIRS = 32
"""Pairs with which both verdicts usually have an answer."""


class SyncConfig(Config):
    """Show at which step a diffusion model decides what an image shows, and its details.

    Two generations share their attention with strength g up to a step and are independent after
    it. Writes a run folder with commitment times, the internal gap and its null, the verdicts
    Coarse first and Internal gap, and report.html. To resume an interrupted run, start it again.
    The defaults fit a processor (24 pairs); each verdict says how small an effect could be seen.
    """

    model: str | None = setting(
        None,
        "A pipeline folder or a hub id",
        argument=True,
        unset="the bundled diffusion transformer",
    )
    scheduler: str | None = setting(
        None, "Folder of the noise schedule", option=True, unset="that of the model"
    )
    encoder: str | None = setting(
        None,
        "Folder of an image model whose features compare outcomes",
        option=True,
        unset="the bundled one",
    )
    labels: tuple[int, ...] = setting(
        (0,), "Classes by number", option=True, metavar="N,N,…", min_length=1
    )
    pairs: int = setting(24, "Pairs of replicas per class", option=True, ge=4, le=MOST_INPUTS)
    finals: int = setting(
        128,
        "Images per class behind the covariance of the Gaussian control",
        ge=0,
        le=MOST_INPUTS,
    )
    steps: int = setting(16, "Reverse steps of a generation", option=True, ge=6)
    couplings: tuple[float, ...] = setting(
        (0.1, 0.5, 1.0),
        "Coupling strengths g in [0, 1]",
        option=True,
        metavar="G,G,…",
        min_length=1,
    )
    interventions: int = setting(7, "Steps, evenly spaced, at which the coupling ends", ge=6)
    sigma: float = setting(
        1.0,
        "Size of the difference at the start of a pair; 1 makes the replicas independent",
        ge=0,
        allow_inf_nan=False,
    )
    mode_sigma: float = setting(
        0.3,
        "Size of the difference at the start where the modes inside the model are measured",
        gt=0,
        allow_inf_nan=False,
    )
    eta: float = setting(1.0, "Noise of a reverse step; 0 is DDIM, 1 is DDPM", ge=0, le=1)
    guidance: float = setting(
        1.0, "Scale of classifier-free guidance; 1 is none", ge=0, allow_inf_nan=False
    )
    coarse: int = setting(
        0, "Side of the coarse image in pixels; 0 is a quarter of the image", ge=0
    )
    band: int = setting(
        0,
        "Modes in the leading and the trailing band; 0 is a quarter of the pairs, at most 8",
        ge=0,
    )
    kept: int = setting(
        16, "Steps, evenly spaced, at which differences inside the model are measured", ge=2
    )
    draws: int = setting(
        199, "Exchanges of pairs behind the null of the internal gap", ge=39, le=MOST_DRAWS
    )
    twins: int = setting(
        5,
        "Networks with the model's weights in random order, beside which the internal gap is "
        "judged",
        ge=2,
        le=1000,
    )
    propagation: bool = setting(True, "Whether the linear response of every block is measured")
    propagation_steps: int = setting(
        2, "Steps, evenly spaced, at which the linear response is measured", ge=2
    )
    propagation_states: int = setting(
        1, "Symmetric trajectories on which the linear response is measured", ge=1
    )
    batch: int = setting(
        64, "Pairs per pass while images are made; the modes take all pairs at once", ge=1
    )
    resamples: int = setting(
        1000, "Bootstrap resamples of the pairs behind each interval", ge=20, le=MOST_DRAWS
    )
    seed: int = shared_setting("seed")
    out: str = shared_setting("out")
    device: str | None = shared_setting("device")
    dtype: str | None = shared_setting("dtype")
    revision: str | None = shared_setting("revision")
    trust_remote_code: bool = shared_setting("trust_remote_code")
