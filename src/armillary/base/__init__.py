"""What every other room stands on: errors and hints, units, files, compiled kernels."""

VERSION = "0.1.0"
