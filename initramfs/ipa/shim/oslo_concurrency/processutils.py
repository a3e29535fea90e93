"""Runs programs. Errors do not contain the arguments of a program: they can be passwords."""

import subprocess
import time


class InvalidArgumentError(Exception):
    pass


class UnknownArgumentError(Exception):
    pass


class ProcessExecutionError(OSError):
    def __init__(self, stdout=None, stderr=None, exit_code=None, cmd=None, description=None):
        super().__init__(stdout, stderr, exit_code, cmd, description)
        self.stdout, self.stderr, self.exit_code, self.cmd = stdout, stderr, exit_code, cmd
        self.description = description or "Unexpected error while running command."

    def __str__(self):
        return "%s\nCommand: %s\nExit code: %s\nStdout: %r\nStderr: %r" % (
            self.description, self.cmd, self.exit_code, self.stdout, self.stderr)


def execute(*cmd, process_input=None, check_exit_code=(0,), delay_on_retry=True, attempts=1, binary=False, shell=False,
            cwd=None, env_variables=None, timeout=None, **kwargs):
    """Runs a program, and returns its output and its error output. Options for logging are ignored."""
    unknown = set(kwargs) - {
        "loglevel", "log_errors", "run_as_root", "root_helper", "prlimit", "preexec_fn", "on_execute", "on_completion",
        "python_exec",
    }
    if unknown:
        raise UnknownArgumentError("unknown arguments %s" % ", ".join(sorted(unknown)))
    if isinstance(check_exit_code, bool):
        wanted = None if not check_exit_code else (0,)
    else:
        wanted = (check_exit_code,) if isinstance(check_exit_code, int) else tuple(check_exit_code)
    words = [str(c) for c in cmd]
    name = "a shell command" if shell else "%s with %d arguments" % (words[0], len(words) - 1)
    if isinstance(process_input, str):
        process_input = process_input.encode()
    while True:
        attempts -= 1
        try:
            done = subprocess.run(
                " ".join(words) if shell else words, input=process_input, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, shell=shell, cwd=cwd, env=env_variables, timeout=timeout)
        except subprocess.TimeoutExpired as e:
            raise subprocess.TimeoutExpired(name, e.timeout, e.output, e.stderr) from None
        stdout, stderr = done.stdout, done.stderr
        if not binary:
            stdout, stderr = stdout.decode(errors="replace"), stderr.decode(errors="replace")
        if wanted is None or done.returncode in wanted:
            return stdout, stderr
        if attempts <= 0:
            raise ProcessExecutionError(stdout, stderr, done.returncode, name)
        if delay_on_retry:
            time.sleep(1)
