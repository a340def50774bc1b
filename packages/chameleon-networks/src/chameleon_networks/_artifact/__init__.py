"""The folder of a delivered network: writing it, and the code that loads it."""
