"""Operators as tasks. This file is empty, so that checks of pipeline files import little."""
