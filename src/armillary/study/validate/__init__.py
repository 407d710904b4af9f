"""Predictions beside measurements of real machines."""
