"""Stands in for oslo.concurrency in a root without it."""
