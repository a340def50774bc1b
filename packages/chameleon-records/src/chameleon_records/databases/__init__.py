"""Record databases: a module for each kind of place."""
