"""How the bundled denoiser is made."""
