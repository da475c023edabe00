"""Settings of ``flowscope doctor``."""

from flowscope.lab.config import Config, setting, shared_setting

__all__ = ["DoctorConfig"]


class DoctorConfig(Config):
    """Show what can be measured on a model, what cannot, and why.

    The model is run on two short rows, with and without the tap; the answers are what was seen in
    these runs.
    """

    model: str = setting(..., "A folder, a hub id, or a .gguf file", argument=True)
    device: str | None = shared_setting("device")
    dtype: str | None = shared_setting("dtype")
    revision: str | None = shared_setting("revision")
    blocks: str | tuple[str, ...] = setting(
        (), "Paths of the modules that hold the blocks, where they are not recognised"
    )
    trust_remote_code: bool = shared_setting("trust_remote_code")
    tokenizer: str | None = shared_setting("tokenizer")
