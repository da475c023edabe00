"""What the tests of engines share: flowscope with the crowd among its instruments."""

import os

import pytest
from tests.lab.engines import crowd
from tests.lab.engines.crowd import CROWD, CrowdConfig

from flowscope.lab import engine, registry
from flowscope.lab.engines.choice import EngineChoice


@pytest.fixture(autouse=True)
def _quick_flush(monkeypatch):
    monkeypatch.setattr(os, "fsync", os.fstat)


@pytest.fixture(autouse=True)
def events(monkeypatch):
    """What happened since the test began; the crowd is an instrument of the registry."""
    known = registry.instrument
    monkeypatch.setattr(registry, "instrument", lambda n: CROWD if n == "crowd" else known(n))
    fresh = crowd.Events()
    monkeypatch.setattr(crowd, "EVENTS", fresh)
    return fresh


@pytest.fixture
def measure():
    """Run the crowd with an engine of one process into a folder; returns the run."""

    def run(folder, choice=None, **settings):
        config = CrowdConfig.resolved(settings)
        return engine.run(CROWD, config, folder=folder, choice=choice or EngineChoice()).run

    return run


@pytest.fixture
def plan():
    """Plan a run of the crowd in a folder."""

    def planned(folder, **settings):
        return engine.planned(CROWD, CrowdConfig.resolved(settings), folder=folder)

    return planned


@pytest.fixture
def tables():
    """Bytes of the tables of a run."""

    def read(run):
        return {path.name: path.read_bytes() for path in (run / "tables").iterdir()}

    return read
