"""Where records are kept: a module for each kind of place."""
