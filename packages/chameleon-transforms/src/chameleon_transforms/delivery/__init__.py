"""Delivery of a chosen network: code, weights, a script that trains it again."""
