"""Reference networks and the weights that ship with the package."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from flowscope.nets.bundled import Bundled, bundled_models, bundled_path

if TYPE_CHECKING:
    from flowscope.nets.encoder import ImageEncoder, bundled_encoder
    from flowscope.nets.sinkformer import Sinkformer, SinkhornAttention

__all__ = [
    "Bundled",
    "ImageEncoder",
    "Sinkformer",
    "SinkhornAttention",
    "bundled_encoder",
    "bundled_models",
    "bundled_path",
]

# Torch is only needed for these.
_NETWORKS = {
    "ImageEncoder": "encoder",
    "Sinkformer": "sinkformer",
    "SinkhornAttention": "sinkformer",
    "bundled_encoder": "encoder",
}


def __getattr__(name: str) -> Any:
    if name in _NETWORKS:
        return getattr(import_module(f"flowscope.nets.{_NETWORKS[name]}"), name)
    raise AttributeError(f"module 'flowscope.nets' has no attribute {name!r}")
