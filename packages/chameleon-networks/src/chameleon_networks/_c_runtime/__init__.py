"""The runtime of delivered networks and operators: C code that is linked into each library."""
