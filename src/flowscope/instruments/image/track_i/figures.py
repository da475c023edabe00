"""The claims of source 000 on the page of its study."""

from flowscope.instruments.image.rotation.figures import NOT_COMPARABLE
from flowscope.report.claims import claims
from flowscope.report.escaping import html_text
from flowscope.report.source import Source

__all__ = ["image_claims"]


def image_claims(source: Source) -> str:
    """What 000 says of its image track beside what was measured, with the warning about R."""
    shown = claims(source, "track_i", "000", "diffusion models of images")
    return f'{shown}<p class="note">{html_text(NOT_COMPARABLE)}</p>'
