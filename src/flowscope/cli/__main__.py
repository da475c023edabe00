"""``python -m flowscope.cli``."""

from flowscope.cli import main

__all__: list[str] = []

main()
