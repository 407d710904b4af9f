"""Conformance suites that another package runs on its own plug-ins."""
