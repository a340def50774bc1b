"""The baseline ``untuned``: the kernels that TVM runs for a user who does not tune."""
