"""Marks of single cases."""

import pytest


def full(*values):
    """A case that takes seconds, beside one of the same test that is always run."""
    return pytest.param(*values, marks=pytest.mark.full)
