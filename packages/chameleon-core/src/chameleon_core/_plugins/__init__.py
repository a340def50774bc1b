"""Plugins: the records that they register, the hooks that they implement, and their loading."""
