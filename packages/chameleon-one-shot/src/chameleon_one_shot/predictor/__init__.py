"""Predictors of kernels' speed: training, evaluation, files."""
