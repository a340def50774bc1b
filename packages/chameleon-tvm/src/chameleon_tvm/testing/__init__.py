"""Tests for developers of operators, templates and instructions."""
