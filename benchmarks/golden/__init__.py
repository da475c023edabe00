"""The working tree against a fixed earlier commit: the same numbers, byte for byte."""
