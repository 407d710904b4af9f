"""Measured training steps beside predicted ones: readers of published rows, studies of them, and their errors.

What kernels and collectives measured alone do not show is at most five constants per software and device,
from data files with source hashes and errors. All of them are keys of a study.
"""
