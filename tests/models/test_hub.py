"""The hub: a silent network is noticed once, and the local cache is read instead."""

import socket
import threading

import pytest
from huggingface_hub import constants

from flowscope.errors import LoadError
from flowscope.models.checkpoints import hub
from flowscope.models.checkpoints.sources import located


@pytest.fixture
def online(monkeypatch):
    """A computer whose network is not switched off for tests."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def asked(monkeypatch):
    """What the library is asked for, which never gives a file."""
    calls = []

    def download(name, file, **options):
        calls.append((file, options))
        raise OSError("no file")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    return calls


def listening(monkeypatch):
    server = socket.create_server(("127.0.0.1", 0))
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
    return server


def test_a_silent_hub_is_given_up_after_five_seconds_for_all_files(online, asked, monkeypatch):
    limits = []

    def connect(address, timeout):
        limits.append(timeout)
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(LoadError, match=r"no model of that id \(the hub did not answer within"):
        located("nobody/nothing")
    assert limits == [hub.PATIENCE]  # one attempt, no second one
    assert hub.PATIENCE <= 5
    assert [file for file, _ in asked] == ["config.json", "model_index.json"]
    assert all(options["local_files_only"] for _, options in asked)


def test_a_lookup_without_end_is_not_waited_for(online, asked, monkeypatch):
    ended = threading.Event()
    monkeypatch.setattr(hub, "PATIENCE", 0.05)

    def connect(address, timeout):
        ended.wait(30)
        raise OSError("the name has no address")

    monkeypatch.setattr(socket, "create_connection", connect)
    try:
        assert hub.hub_silence() == "the hub did not answer within 0.05 s"
    finally:
        ended.set()


def test_a_hub_that_answers_is_asked_with_a_short_limit(online, asked, monkeypatch):
    with listening(monkeypatch):
        assert hub.hub_silence() == ""
        with pytest.raises(LoadError, match=r"the hub gave no model of that id \(OSError\)"):
            located("nobody/nothing")
    assert not any(options["local_files_only"] for _, options in asked)
    assert all(options["etag_timeout"] <= 5 for _, options in asked)


def test_a_proxy_stands_for_the_hub(online, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://proxy.example:8080")
    assert hub._gate("http://hub.example") == ("proxy.example", 8080)
    monkeypatch.setenv("no_proxy", "hub.example")
    assert hub._gate("http://hub.example") == ("hub.example", 80)


def test_a_hub_that_is_switched_off_is_not_tried(asked, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(socket, "create_connection", None)
    with pytest.raises(LoadError, match=r"HF_HUB_OFFLINE is set"):
        located("nobody/nothing")
