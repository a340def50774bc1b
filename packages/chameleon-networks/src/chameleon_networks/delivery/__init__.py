"""The end of a run: compiles a network with the winners, verifies it and compares it."""
