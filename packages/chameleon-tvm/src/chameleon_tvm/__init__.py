"""Chameleon: tvm."""
