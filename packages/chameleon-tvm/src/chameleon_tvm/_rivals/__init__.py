"""Other tuners (rivals) to compare with, each in its own process under equal conditions.

All have the same number of threads, and one clock times all kernels.
"""
