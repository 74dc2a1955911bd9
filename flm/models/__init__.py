"""Configurations, weights and the networks themselves."""
