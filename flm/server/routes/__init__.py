"""The paths, a thin module a family."""
