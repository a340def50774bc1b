"""The end of a run: networks compiled with the winners, verified and compared."""
