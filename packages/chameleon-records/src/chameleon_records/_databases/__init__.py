"""Record databases, with a module for each kind of place."""
