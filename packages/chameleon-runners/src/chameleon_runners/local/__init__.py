"""The runner ``local``: workers of this machine build and time candidates in turns."""
