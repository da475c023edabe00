"""The page of a run, by the command in its settings or, in folders of version 0.1, its tables."""

from collections.abc import Mapping

from flowscope.records import Run
from flowscope.report import audit_page, heads_page, image_page, sync_page
from flowscope.report.spec import Page

__all__ = ["PAGES", "page_of"]

PAGES: tuple[Page, ...] = (audit_page.PAGE, sync_page.PAGE, image_page.PAGE, heads_page.PAGE)
"""Every page; the first is that of a run that nothing identifies."""


def page_of(run: Run) -> Page:
    """Page of the command that the settings name, else of the first whose tables are there.

    Raises
    ------
    RecordError
        The manifest is damaged.
    """
    manifest, present = run.read_manifest(), run.tables()
    for config in (manifest.config_resolved, manifest.config_given):
        if isinstance(config, Mapping) and "command" in config:
            named = [page for page in PAGES if page.command == config["command"]]
            if named:
                return named[0]
            break
    telling = (page for page in PAGES if any(name in present for name in page.telling))
    return next(telling, PAGES[0])
