"""Reference networks and the weights that ship with the package."""

from flowscope.nets.bundled import Bundled, bundled_models, bundled_path

__all__ = ["Bundled", "bundled_models", "bundled_path"]
