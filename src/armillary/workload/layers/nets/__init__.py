"""Layers of the models that are no transformers."""
