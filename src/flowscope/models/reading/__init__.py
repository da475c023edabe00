"""How a model is read: what is unwrapped, what it is fed, which positions count, answers twice."""

__all__ = ()
