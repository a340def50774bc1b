"""TVM's own tuner on whole networks, for comparisons."""
