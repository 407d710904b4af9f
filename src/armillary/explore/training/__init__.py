"""How long a training step takes on a machine: kernels and collectives as measured, and what a software adds."""
