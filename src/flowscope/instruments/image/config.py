"""Settings of the comparison of a probability flow with its SDE."""

from __future__ import annotations

from typing import Literal

from flowscope.lab.config import MOST_DRAWS, MOST_INPUTS, Config, setting, shared_setting

__all__ = ["GUIDED", "ImageConfig"]


class ImageConfig(Config):
    """Compare the ODE and SDE samplers of a diffusion model: error by steps, score, classes.

    Do both samplers give the same distribution, does the sampling error halve when the steps
    double, does the learned score rotate, and when is the class of an image decided? Writes a run
    folder with tables, the verdicts Parity and Gradient, the gate First order, and report.html. To
    resume an interrupted run, start it again. The model 'mixture' is two Gaussians with their exact
    score. The defaults are a small run (40 images): parity wants 500, the order of the error 64
    (family_images), rotation 200. A run says what it could have seen.
    """

    model: str | None = setting(
        None,
        "A pipeline folder, a hub id, or 'mixture'",
        argument=True,
        unset="the bundled diffusion transformer",
    )
    scheduler: str | None = setting(
        None, "Folder of the noise schedule", option=True, unset="that of the model"
    )
    reader: str | None = setting(
        None,
        "Folder of an image classifier that recognises the classes",
        option=True,
        unset="the bundled one for the bundled model",
    )
    images: int = setting(40, "Images whose paths are compared", option=True, ge=8, le=MOST_INPUTS)
    steps: int = setting(16, "Reverse steps of a path", option=True, ge=4)
    bins: int = setting(64, "Bins of a histogram of pixel values", option=True, ge=4)
    doubling: tuple[int, ...] = setting(
        (4, 8, 16),
        "Numbers of steps, each compared with twice as many, for the sampling error",
        option=True,
        metavar="K,K,…",
        min_length=2,
    )
    family_images: int = setting(
        16, "Images on which the error of sampling is measured", ge=8, le=MOST_INPUTS
    )
    lams: tuple[float, ...] = setting(
        (0.0, 0.5, 1.0),
        "Members λ of the family of samplers, from ODE (0) to SDE (1)",
        option=True,
        metavar="L,L,…",
        min_length=1,
    )
    integrator: Literal["ddim", "euler"] = setting(
        "ddim", "Formula of a reverse step (ddim takes η = λ)"
    )
    rank: int = setting(4, "Principal coordinates of the images for the score", ge=2)
    rotation_times: int = setting(
        3, "Windows of steps in which rotation of the score is measured; 0 leaves it out", ge=0
    )
    rotation_images: int = setting(
        2000, "Images, at most, on which rotation of the score is measured", ge=8
    )
    rotation_degree: int = setting(
        2, "Degree of the polynomial fields; rotation in finer patterns is not seen", ge=1, le=3
    )
    information_images: int = setting(
        20, "Images on which information about the class is measured; 0 leaves this out", ge=0
    )
    uturn_images: int = setting(
        12, "Images that are noised to a time and denoised again; 0 leaves this out", ge=0
    )
    uturn_times: int = setting(6, "Times to which images are noised", ge=1, le=1000)
    guidance: float = setting(
        1.0, "Scale of classifier-free guidance; 1 is none", ge=0, allow_inf_nan=False
    )
    batch: int = setting(40, "Images in one pass through the model", ge=1)
    resamples: int = setting(
        1000, "Bootstrap resamples of the images behind all other intervals", ge=20, le=MOST_DRAWS
    )
    draws: int = setting(
        999,
        "Resamples and swaps of the images behind the distances of histograms",
        ge=39,
        le=MOST_DRAWS,
    )
    seed: int = shared_setting("seed")
    out: str = shared_setting("out")
    device: str | None = shared_setting("device")
    dtype: str | None = shared_setting("dtype")
    revision: str | None = shared_setting("revision")
    trust_remote_code: bool = shared_setting("trust_remote_code")


GUIDED = (
    "with guidance the field is not the score of any distribution: ODE and SDE may differ, and the "
    "field need not be a gradient"
)
