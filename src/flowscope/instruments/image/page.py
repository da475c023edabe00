from flowscope.report.image_page import PAGE  # noqa: D100, F401
