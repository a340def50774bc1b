"""Writes a chosen network to a folder: code, weights, and a script that trains it again."""
