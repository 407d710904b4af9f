"""Stages of a pipeline taken apart into layers, and put together again in another number."""
