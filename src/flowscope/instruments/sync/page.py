from flowscope.report.sync_page import PAGE  # noqa: D100, F401
