"""Report: the page and the pictures of an audit, built from its run folder alone.

:func:`report_html` is the page as text, :func:`render` writes it into the run folder with the
PNG figures. Neither needs the model: tables, verdicts and the manifest are all they read.
"""

from flowscope.report.page import render, report_html

__all__ = ["render", "report_html"]
