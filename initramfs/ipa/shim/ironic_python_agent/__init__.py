"""Stands in for ironic-python-agent in a root without it: what hardware manager plug-ins need of it."""
