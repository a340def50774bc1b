"""Checks for authors of plugins: each kind of plugin is tested against its contract."""
