"""Reference networks and the weights that ship with the package."""

from typing import TYPE_CHECKING, Any

from flowscope.nets.bundled import Bundled, bundled_models, bundled_path

if TYPE_CHECKING:
    from flowscope.nets.sinkformer import Sinkformer, SinkhornAttention

__all__ = ["Bundled", "Sinkformer", "SinkhornAttention", "bundled_models", "bundled_path"]


def __getattr__(name: str) -> Any:
    if name in ("Sinkformer", "SinkhornAttention"):  # torch is only needed for these
        from flowscope.nets import sinkformer

        return getattr(sinkformer, name)
    raise AttributeError(f"module 'flowscope.nets' has no attribute {name!r}")
