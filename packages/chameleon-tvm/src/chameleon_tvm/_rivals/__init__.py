"""Other tuners (rivals) to compare with, each in its own process under equal conditions."""
