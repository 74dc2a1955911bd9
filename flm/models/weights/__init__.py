"""Readers of weight files."""
