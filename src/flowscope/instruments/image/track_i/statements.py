from flowscope.runs.image_statements import image_statement_table  # noqa: D100, F401
