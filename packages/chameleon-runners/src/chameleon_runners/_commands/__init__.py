"""Commands that list, test and serve devices."""
