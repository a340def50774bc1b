"""The runner ``local``: workers on this machine build candidates, then time them in turns."""
