from flowscope.runs.sync_statements import sync_statement_table  # noqa: D100, F401
