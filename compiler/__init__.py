"""Turn a trace into a placement plan, offline and without a GPU."""
