"""The runner ``cuda``: the GPUs of this machine."""
