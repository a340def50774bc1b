"""Gram matrices: an operator with a template, as a plugin of Chameleon."""
