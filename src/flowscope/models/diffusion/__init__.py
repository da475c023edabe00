"""Diffusion models: the denoiser with its schedule, its loading, its marks."""

__all__ = ()
