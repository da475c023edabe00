"""How a run of ``flowscope sync`` is drawn and worded."""

__all__: list[str] = []
