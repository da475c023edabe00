"""Records: frozen data and their files, nothing else.

What a probe measured (:class:`Measurement`), what was concluded from it (:class:`Verdict`),
where both come from (:class:`Manifest`), and the folder that holds them (:class:`Run`). What is
not there is an :class:`Unavailable` with its reason. No record knows a model, a clock or torch.
"""

from flowscope.errors import Missing
from flowscope.records.absence import Unavailable
from flowscope.records.files import file_hash
from flowscope.records.interval import Interval
from flowscope.records.manifest import Manifest, library_versions
from flowscope.records.measurement import Measurement
from flowscope.records.run import Run
from flowscope.records.sharding import Crew, Shards, Task
from flowscope.records.storage.arrays import array_hash
from flowscope.records.storage.documents import SCHEMA, fingerprint
from flowscope.records.storage.shards import Shard, ShardKey
from flowscope.records.verdict import Decision, Outcome, Strength, Verdict

__all__ = [
    "SCHEMA",
    "Crew",
    "Decision",
    "Interval",
    "Manifest",
    "Measurement",
    "Missing",
    "Outcome",
    "Run",
    "Shard",
    "ShardKey",
    "Shards",
    "Strength",
    "Task",
    "Unavailable",
    "Verdict",
    "array_hash",
    "file_hash",
    "fingerprint",
    "library_versions",
]
