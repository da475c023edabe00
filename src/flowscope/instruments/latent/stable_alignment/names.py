"""Names of the kinds of text, of the members and of the ways to combine them."""

__all__ = [
    "APART", "AVERAGE", "CHILDREN", "DOMAINS", "FIRST", "LAYER_SETS", "LOGITS", "OTHER", "PAIRED",
    "PARENT", "PLAIN", "PROBABILITIES", "SECOND", "TRANSPORT", "TWIN",
]  # fmt: skip

DOMAINS = {"first": "texts of the first child", "second": "texts of the second child",
           "general": "prompts of the run"}  # fmt: skip
"""Kinds of text by name, in words."""

CHILDREN, TWIN, OTHER = "children", "turned twin", "other seed"
PARENT, FIRST, SECOND = "parent", "first member", "second member"
APART = "members apart"
LOGITS, PROBABILITIES, AVERAGE = "logit mean", "probability mean", "weight average"
PAIRED, TRANSPORT = "consensus, paired", "consensus, transport"

PLAIN = (LOGITS, PROBABILITIES, AVERAGE)
"""Cheap ways to combine two models, which consensus has to beat."""

LAYER_SETS = ("all", "early", "middle", "late", "last")
"""After which blocks states are moved: all, thirds of the depth, or the last one."""
