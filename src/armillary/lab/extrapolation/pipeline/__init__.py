"""Takes the stages of a pipeline apart into layers and rebuilds them in another number."""
