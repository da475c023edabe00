"""Readers of images: encoders that compare two images, classifiers that name one."""

__all__ = ()
