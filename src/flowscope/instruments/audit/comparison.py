from flowscope.runs.comparison import compared  # noqa: D100, F401
