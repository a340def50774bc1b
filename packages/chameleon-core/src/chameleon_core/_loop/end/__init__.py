"""The steps after the last batch: the comparison, the delivery, and the result."""
