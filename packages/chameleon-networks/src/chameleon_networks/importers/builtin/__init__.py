"""Networks of our own, in plain torch with random weights: something to tune at once."""
