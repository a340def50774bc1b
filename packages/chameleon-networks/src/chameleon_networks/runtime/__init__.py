"""The run time of delivered networks and operators: C that is linked into each library."""
