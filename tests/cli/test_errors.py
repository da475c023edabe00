"""Errors that nobody foresaw: one sentence, a document with --json, the traceback on request."""

import json

import pytest
from typer.testing import CliRunner

import flowscope
from flowscope.cli.commands import app
from flowscope.errors import InvalidInputError


@pytest.fixture
def broken(monkeypatch):
    """A library that raises something of its own while the model is examined."""

    def examine(*arguments, **options):
        raise ZeroDivisionError("a library\nfailed in its own way")

    monkeypatch.setattr("flowscope.models.doctor.doctor", examine)


def test_one_sentence(broken):
    done = CliRunner().invoke(app, ["doctor", "language"])
    assert done.exit_code == 1
    text = " ".join(done.stderr.split())
    assert "error: an unexpected ZeroDivisionError: a library. Run flowscope --debug" in text
    assert "Traceback" not in done.output


def test_a_document(broken):
    done = CliRunner().invoke(app, ["doctor", "language", "--json"])
    assert done.exit_code == 1
    document = json.loads(done.stdout)
    assert document["kind"] == "ZeroDivisionError"
    assert document["error"].startswith("an unexpected ZeroDivisionError: a library.")


@pytest.mark.parametrize("way", ["option", "environment"])
def test_the_traceback_on_request(broken, way, monkeypatch):
    monkeypatch.setenv("FLOWSCOPE_DEBUG", "1" if way == "environment" else "")
    option = ["--debug"] if way == "option" else []
    done = CliRunner().invoke(app, [*option, "doctor", "language"])
    assert isinstance(done.exception, ZeroDivisionError)


@pytest.mark.parametrize("name", ["audit", "heads", "sync", "image"])
def test_none_is_no_model(name):
    function = getattr(flowscope, name)
    with pytest.raises(InvalidInputError, match=rf"{name}\(\) got None as \w+. Give a model"):
        function(None)
