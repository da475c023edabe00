"""Probes of the residual stream as a field: what each write does and where it comes from."""

__all__ = ()
