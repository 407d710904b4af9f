"""Constants of models, fitted to what was measured on a person's own machine."""
