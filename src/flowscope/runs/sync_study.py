"""Source 004 on a model: both protocols on coupled replicas, and its claims."""

from flowscope.lab.progress import Progress
from flowscope.records import Run
from flowscope.runs.studies import SynchronizationGap
from flowscope.runs.sync import sync_of
from flowscope.runs.sync_statements import sync_statement_table

__all__ = ["synchronization_gap_run"]


def synchronization_gap_run(config: SynchronizationGap, progress: Progress) -> Run:
    """Run the study; a reading that was begun before is taken up again."""
    run = sync_of(config.sync, progress).run
    run.write_table(config.study, sync_statement_table(run))
    return run
