"""Networks run in processes of their own: verified, timed, profiled."""
