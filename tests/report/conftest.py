from tests.instruments.conftest import quick_flush, run

__all__ = ["quick_flush", "run"]
