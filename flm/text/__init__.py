"""Tokens and their meaning: tokenizer, chat template, detokeniser, stop strings."""
