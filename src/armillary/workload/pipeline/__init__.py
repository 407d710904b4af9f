"""Which layers a pipeline stage has, and which microbatch it works on when."""
