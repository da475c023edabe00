"""Source 000's image track on a model: parity, error of sampling, rotation, and its claims."""

from flowscope.lab.progress import Progress
from flowscope.records import Run
from flowscope.runs.image import image_of
from flowscope.runs.image_statements import image_statement_table
from flowscope.runs.studies import TrackI

__all__ = ["track_i_run"]


def track_i_run(config: TrackI, progress: Progress) -> Run:
    """Run the study; a reading that was begun before is taken up again."""
    run = image_of(config.image, progress).run
    run.write_table(config.study, image_statement_table(run))
    return run
