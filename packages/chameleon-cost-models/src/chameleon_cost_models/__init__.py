"""Cost models, which learn from measurements and predict how fast configurations are."""
