"""The engine that agrees with ASTRA-sim to the tick: its program, its kernels and its links with contention."""
