"""The command ``chameleon transform``."""
