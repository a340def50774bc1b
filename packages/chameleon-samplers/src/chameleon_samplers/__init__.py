"""Samplers, which select a batch from candidates, and synthesizers, which change the batch."""
