"""Other tuners as rivals on recorded tables."""
