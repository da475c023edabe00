from flowscope.runs.regime_statements import regime_statement_table  # noqa: D100, F401
