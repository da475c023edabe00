from flowscope.report.heads_page import PAGE  # noqa: D100, F401
