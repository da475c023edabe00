"""How the bundled diffusion transformer and its image encoder are made."""
