"""What another package runs on its own plug-ins."""
