"""Hill climbing, for the Chameleon auto-tuner."""
