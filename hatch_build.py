"""What a package index shows: the README with links that work there, and the project's addresses.

A link of the README to another file works in a checkout and nowhere else. A build that is told
where the project lives (``FLOWSCOPE_URL=https://… python -m hatchling build``) makes such links
absolute and names the addresses; one that is not told turns them into plain words.
"""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_IMAGE = re.compile(r"!\[([^\]]*)\]\((?!https?://|#)([^)]+)\)\n?")
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?://|#)([^)]+)\)")


def published(readme: str, url: str) -> str:
    """Text of the README for a reader who has no checkout."""
    if not url:
        return _LINK.sub(r"\1", _IMAGE.sub("", readme))
    absolute = _IMAGE.sub(rf"![\1]({url}/raw/main/\2)\n", readme)
    return _LINK.sub(rf"[\1]({url}/blob/main/\2)", absolute)


def addresses(url: str) -> dict[str, str]:
    """Addresses of the project, by what they are."""
    if not url:
        return {}
    pages = {"Documentation": "README.md", "Changelog": "CHANGELOG.md"}
    named = {name: f"{url}/blob/main/{page}" for name, page in pages.items()}
    return {"Homepage": url, "Source": url, "Issues": f"{url}/issues", **named}


class PublishedMetadata(MetadataHookInterface):
    """Fills in the README and the addresses at build time."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add what depends on where the project lives."""
        url = os.environ.get("FLOWSCOPE_URL", "").rstrip("/")
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": published(readme, url)}
        metadata["urls"] = addresses(url)
