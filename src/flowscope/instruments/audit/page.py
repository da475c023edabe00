from flowscope.report.audit_page import PAGE  # noqa: D100, F401
