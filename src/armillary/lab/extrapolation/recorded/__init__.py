"""Recorded PyTorch traces: dimensions of tensors, and where they come from."""
