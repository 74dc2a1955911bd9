"""Ids in, ids out: sequences are planned, run and settled, a step at a time."""
