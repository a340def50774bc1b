"""Vendors' libraries, which a user would otherwise call."""
