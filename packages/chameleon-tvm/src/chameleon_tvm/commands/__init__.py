"""Commands of this package for the command line."""
