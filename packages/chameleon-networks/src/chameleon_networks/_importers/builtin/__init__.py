"""Builtin networks in plain torch with random weights, to tune without a model of your own."""
