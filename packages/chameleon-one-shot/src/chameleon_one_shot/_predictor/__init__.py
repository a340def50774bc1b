"""Predictors of kernels' speed: their training, their evaluation and their files."""
