"""Traces learned from traces: a corpus, tokens, and generators that make new ones."""
