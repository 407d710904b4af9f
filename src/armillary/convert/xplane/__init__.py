"""Profiles of JAX and XLA (``.xplane.pb``): what ran on every device, and the modules that it was compiled from."""
