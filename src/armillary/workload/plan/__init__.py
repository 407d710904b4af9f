"""How a model is spread over ranks and run."""
