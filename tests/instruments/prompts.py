"""Three short prompts that the audits of this folder share."""

__all__ = ["TEXTS"]

TEXTS = [
    "In the beginning was a word, and the word was with the reader of many books.",
    "Natalia sold clips to 48 of her friends in April, and then she sold half as many in May.",
    "To be, or not to be: that is the question that every schoolboy has to learn by heart.",
]
