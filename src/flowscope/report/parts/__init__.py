"""Parts of the page: verdict cards, strips of images, captions, downloads, appendix."""

__all__ = ()
