"""What a summary says of the work of several processes."""

from collections.abc import Mapping
from typing import Any

__all__ = ["work_sentence"]


def work_sentence(work: Mapping[str, Any]) -> str:
    """How the work on a run was shared, in a sentence; empty where one process did it all."""
    if not work or "workers" not in work:
        return ""
    share, workers = work["serial_share"], work["workers"]
    who = f"{workers} workers" if workers > 1 else "one worker"
    limit = f" More workers make it at most {1 / share:.1f} times faster." if share > 0.02 else ""
    twice = f" {len(work['made_twice'])} were made twice." if work["made_twice"] else ""
    return (
        f"work: {work['engine']}, {who}; {work['shards']} shards, made by "
        f"{len(work['made_by'])} processes.{twice} {share:.0%} of the work is done by one process "
        f"alone.{limit}"
    )
