"""The command ``chameleon records``."""
