"""Files of a hub repository; where the hub does not answer, the local cache alone is read.

Libraries try a silent network again and again, for most of a minute. One connection is tried here,
in `PATIENCE` seconds at most, and what it showed holds for all files of the model.
"""

import socket
import threading
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

__all__ = ["PATIENCE", "fetched", "hub_silence"]

PATIENCE = 4.0
"""Seconds for which the hub is waited for."""


def hub_silence() -> str:
    """Why only the local cache can be read; empty where the hub takes a connection.

    A proxy in front of the hub counts as the hub.
    """
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    answers: list[bool] = []
    host, port = _gate(constants.ENDPOINT)

    def connect() -> None:
        try:
            socket.create_connection((host, port), timeout=PATIENCE).close()
        except OSError:
            return
        answers.append(True)

    # A thread, because looking up a name has no limit of its own.
    attempt = threading.Thread(target=connect, daemon=True)
    attempt.start()
    attempt.join(PATIENCE)
    return "" if answers else f"the hub did not answer within {PATIENCE:g} s"


def _gate(endpoint: str) -> tuple[str, int]:
    """Host and port that a request to an address goes to first.

    >>> _gate("https://hub.example/models")
    ('hub.example', 443)
    """
    address = urlsplit(endpoint)
    proxy = urllib.request.getproxies().get(address.scheme)
    if proxy and not urllib.request.proxy_bypass(address.hostname or ""):
        address = urlsplit(proxy if "//" in proxy else f"//{proxy}")
    usual = 80 if address.scheme == "http" else 443
    return address.hostname or "", address.port or usual


def fetched(name: str, file: str, revision: str | None, *, offline: bool) -> Path:
    """A file of a repository, from the local cache if it is there."""
    from huggingface_hub import hf_hub_download

    path = hf_hub_download(
        name, file, revision=revision, local_files_only=offline, etag_timeout=PATIENCE
    )
    return Path(str(path))
