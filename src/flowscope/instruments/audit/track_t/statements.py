from flowscope.runs.track_t_statements import track_t_statement_table  # noqa: D100, F401
