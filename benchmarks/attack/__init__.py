"""Attacks on what flowscope promises; each writes its counts to ``benchmarks/results``."""
