"""Published studies, made again with our own models; each module says what its source gives and what it assumes."""
