"""Functions that hardware manager plug-ins use."""

from oslo_concurrency import processutils


def execute(*cmd, **kwargs):
    """Runs a program and returns its output and its error output."""
    for name in ("use_standard_locale", "log_stdout"):
        kwargs.pop(name, None)
    return processutils.execute(*cmd, **kwargs)


def try_execute(*cmd, **kwargs):
    try:
        return execute(*cmd, **kwargs)
    except (processutils.ProcessExecutionError, OSError):
        return None
