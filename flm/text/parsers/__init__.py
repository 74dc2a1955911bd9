"""Readers of a model’s output dialect, a small module each."""
