"""One file per question, with its peer; results are files."""
