"""The loggers of oslo.log are those of the standard library."""

import logging


def getLogger(name=None, *args, **kwargs):
    return logging.getLogger(name)
