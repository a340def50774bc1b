"""What a user of TVM would run without tuning."""
