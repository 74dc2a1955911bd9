"""The only place with machine specifics: attention and products as plain functions."""
