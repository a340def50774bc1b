"""Explorers, which are search algorithms, and the presets that use them."""
