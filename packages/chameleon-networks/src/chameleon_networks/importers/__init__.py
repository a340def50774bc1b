"""Frontends: what turns a model into tasks."""
