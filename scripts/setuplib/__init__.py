"""The parts of scripts/setup. Standard library only."""
