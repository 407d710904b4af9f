"""The base of all other packages: errors and hints, units, files, compiled kernels."""

VERSION = "0.1.0"
