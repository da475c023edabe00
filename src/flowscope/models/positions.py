"""How many positions a model has: beyond its table of them it cannot be run."""

from torch import nn

from flowscope.errors import InvalidInputError

__all__ = ["position_limit", "refuse_long_prompts"]

_NAMES = ("position", "wpe", "pos_emb")


def position_limit(model: nn.Module) -> int | None:
    """Longest input that the tables of positions allow; None where positions are computed.

    Some tables keep their first rows for padding, which are not positions.

    >>> table = nn.ModuleDict({"position_embeddings": nn.Embedding(514, 8, padding_idx=1)})
    >>> position_limit(table)
    512
    """
    limits = [
        module.num_embeddings - _reserved(module)
        for name, module in model.named_modules()
        if isinstance(module, nn.Embedding) and any(part in name.lower() for part in _NAMES)
    ]
    return min(limits, default=None)


def _reserved(table: nn.Embedding) -> int:
    if table.padding_idx is not None:
        return int(table.padding_idx) + 1
    return int(getattr(table, "offset", 0))


def refuse_long_prompts(model: nn.Module, longest: int) -> None:
    """Refuse prompts that are longer than the model has positions.

    Raises
    ------
    InvalidInputError
        The longest prompt does not fit; the message says how many tokens do.
    """
    limit = position_limit(model)
    if limit is not None and longest > limit:
        raise InvalidInputError(
            f"{type(model).__name__} has {limit} positions; the longest prompt has {longest} "
            f"tokens. Take --tokens {limit} (tokens={limit}) or fewer."
        )
