"""The registry: unique names, the nearest one for a misspelling, studies of an instrument."""

import dataclasses

import pytest

import flowscope.instruments
from flowscope.errors import InvalidInputError
from flowscope.lab import registry

NAMES = registry.instrument_names()


@pytest.fixture
def fresh_registry():
    """The registry reads its names anew, before and after."""
    caches = (registry.instrument_names, registry._declared, registry.studies)
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


def test_two_instruments_of_one_name_are_refused(monkeypatch, fresh_registry):
    monkeypatch.setattr(flowscope.instruments, "NAMES", (*NAMES, NAMES[0]))
    with pytest.raises(InvalidInputError, match=f"Two instruments are named '{NAMES[0]}'"):
        registry.instrument(NAMES[1])


def test_an_instrument_that_declares_another_name_is_refused(monkeypatch, fresh_registry):
    home = getattr(flowscope.instruments, NAMES[0])
    other = dataclasses.replace(home.INSTRUMENT, name="sonar")
    monkeypatch.setattr(home, "INSTRUMENT", other)
    with pytest.raises(InvalidInputError, match=f"named 'sonar'; expected '{NAMES[0]}'"):
        registry.instrument(NAMES[0])


@pytest.mark.parametrize("name", NAMES)
def test_a_misspelt_instrument_gets_the_nearest_name(name):
    with pytest.raises(InvalidInputError, match=f"Did you mean '{name}'"):
        registry.instrument(f"{name}x")


@pytest.mark.parametrize("name", registry.studies())
def test_a_study_knows_its_instrument_and_its_table_of_claims(name):
    study = registry.study(name)
    assert study.name == name
    assert any(study.instrument.study(reference) is study for reference in study.instrument.studies)
    assert study.tables[name].keys == ("item",)
    with pytest.raises(InvalidInputError, match=f"Did you mean '{name}'"):
        registry.study(f"{name}x")
