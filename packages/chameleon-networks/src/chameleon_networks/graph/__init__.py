"""Graph passes: turn imported networks into ones to compile, and find the operators to tune."""
