"""What is measured: models, the inputs they read, and how both are loaded."""

__all__: list[str] = []
