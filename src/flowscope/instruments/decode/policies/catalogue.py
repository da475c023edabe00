"""Policies by name."""

from __future__ import annotations

import difflib

from flowscope.errors import InvalidInputError
from flowscope.instruments.decode.policies.once import (
    Joint,
    Prophet,
    SchedCosine,
    SchedExponential,
    SchedLinear,
    Stable,
)
from flowscope.instruments.decode.policies.parallel import (
    EntropyBound,
    Factor,
    Klass,
    Plain,
    Threshold,
)
from flowscope.instruments.decode.policies.protocol import Policy
from flowscope.instruments.decode.policies.verified import Draft, Reference

__all__ = ["POLICIES", "policy_named"]

POLICIES: dict[str, type[Policy]] = {
    kind.name: kind
    for kind in (
        Threshold, Factor, EntropyBound, Klass, Prophet, SchedLinear, SchedCosine,
        SchedExponential, Stable, Joint, Draft, Plain, Reference,
    )
}  # fmt: skip
"""Every policy, in the order in which help and tables list them."""


def policy_named(name: str, threshold: float | None = None) -> Policy:
    """A policy with a threshold, its published one by default.

    Raises
    ------
    InvalidInputError
        There is no policy of that name.
    """
    if name not in POLICIES:
        near = difflib.get_close_matches(name, POLICIES, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(POLICIES)}."
        raise InvalidInputError(f"No policy is named {name!r}. {hint}")
    kind = POLICIES[name]
    return kind(threshold=kind.default if threshold is None else threshold)
