"""Serving: requests arrive, a scheduler batches them as an inference engine does, and each step takes its time."""
