"""Stands in for oslo.log in a root without it."""
