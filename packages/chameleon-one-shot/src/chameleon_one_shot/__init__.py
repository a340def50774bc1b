"""One-shot tuning: a predictor learns from many tasks which kernels of a new task are fast.

``dataset`` has data sets of measured candidates: their format, their collection and imports.
``predictor`` trains and evaluates predictors. ``commands`` has the commands of the command line.
"""
