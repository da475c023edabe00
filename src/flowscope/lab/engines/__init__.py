"""Engines: several processes make the shards of one run; the run folder is all that they share.

A run is planned (`plan`), its shards are *claimed* by processes (`claims`, `crew`), and one of
them, the driver, does what the command does without an engine: it walks all stages, judges and
closes the run. It finds the shards that others have made. Workers walk the same stages and write
nothing but shards (`working`). `processes` starts workers on this machine, `ray_actors` on a Ray
cluster, and ``flowscope work RUN`` is one by hand. Reasons are in ``docs/design/engines.md``.
"""

__all__ = ()
