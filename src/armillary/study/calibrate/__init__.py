"""Constants of models from measurements."""
