"""The runner ``cuda``, which measures on the GPUs of this machine."""
