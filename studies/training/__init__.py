"""How the bundled language model was made: text, tokenizer, training, card."""
