"""Graph passes: prepare imported networks for compilation, and find the operators to tune."""
