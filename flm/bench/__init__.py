"""Measuring a server from outside, as its clients see it."""
