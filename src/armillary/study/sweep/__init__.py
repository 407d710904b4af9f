"""Sweeps: many studies that differ in some keys, what each of them came to, and which is best."""
