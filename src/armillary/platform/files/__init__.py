"""Machines in files: studies, presets, and the files of ASTRA-sim and other tools."""
