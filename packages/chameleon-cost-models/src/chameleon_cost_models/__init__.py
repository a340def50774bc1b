"""Cost models, which predict the quality of configurations from what was measured."""
