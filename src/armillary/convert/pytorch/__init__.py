"""PyTorch: host and device traces, joined and turned into Chakra."""
