"""Records as files: sealed documents, arrays, the ledger of a run, shards."""

__all__ = ()
