"""Networks of the corpus: functions that return a torch module in eval mode and example inputs.

Weights are random. Token ids of examples are the largest ones there are, which says how far random
ones may go.
"""
