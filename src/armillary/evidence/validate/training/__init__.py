"""Measured training steps beside predicted ones: readers of published rows, studies of them, and their errors."""
