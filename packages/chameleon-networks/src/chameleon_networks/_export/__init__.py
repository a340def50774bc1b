"""Exports winners for use without Chameleon: operators as libraries, and bundles for C."""
