"""In which order the chunks of a collective visit the dimensions of a machine."""
