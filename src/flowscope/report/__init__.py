"""Report: the page and the pictures of a run, built from its folder alone.

:func:`report_html` is the page as text, :func:`render` writes it into the run folder, on
demand with the figures as PNG. Both take the :class:`Page` of the instrument that wrote the run.
Neither needs the model: tables, verdicts and the manifest are all they read.
"""

from flowscope.report.page import render, report_html
from flowscope.report.spec import Page

__all__ = ["Page", "render", "report_html"]
