"""Traces that behave like others and say little about them."""
