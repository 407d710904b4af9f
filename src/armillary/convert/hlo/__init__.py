"""XLA HLO: text to a module, a module to operations with costs, operations to the graphs of all ranks."""
