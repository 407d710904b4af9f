"""Calibration: constants of models, fitted to measurements of a user's own machine."""
