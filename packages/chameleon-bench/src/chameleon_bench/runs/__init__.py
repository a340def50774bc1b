"""Run folders: listed, compared with each other, and followed while they are written."""
