"""One-shot tuning: a predictor learns from many tasks which kernels of a new task are fast."""
