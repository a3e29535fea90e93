"""Starts and stops ironic-python-agent in its machine, at requests to port 9998.

POST /start with {"cmdline": TEXT, "files": {PATH: TEXT}} ends a running agent, replaces the agent's configuration
files, shows the agent the text as the kernel's command line, and starts it by its own systemd unit. POST /stop ends
the agent, POST /sync writes out all file systems and block devices. GET /log returns the log since the start, GET
/versions the versions of the packages and of the kernel.
"""

import glob
import http.server
import json
import os
import pathlib
import shutil
import subprocess

UNIT = "ironic-python-agent.service"
CONFIG = pathlib.Path("/etc/ironic-python-agent/ironic-python-agent.conf")
LOG = pathlib.Path("/var/log/ironic-python-agent/ironic-python-agent.log")
# Files that an agent leaves. They are deleted before the agent of the next scenario starts.
STALE = ["/etc/ironic-python-agent.d/*", "/var/log/ironic-python-agent/*", "/run/ironic-python-agent/*",
         "/var/lib/ironic-python-agent/*", "/run/ironic-python-agent*.lock"]


def run(*args):
    result = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode:
        raise RuntimeError("%s: status %d: %s" % (args, result.returncode, result.stdout))
    return result.stdout


def stop():
    run("systemctl", "stop", UNIT)
    subprocess.run(["systemctl", "reset-failed", UNIT], stderr=subprocess.DEVNULL)


def start(request):
    stop()
    for pattern in STALE:
        for path in glob.glob(pattern):
            if os.path.isdir(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)
    CONFIG.write_text("[DEFAULT]\n")
    for path, text in request["files"].items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        pathlib.Path(path).write_text(text)
    subprocess.run(["umount", "/proc/cmdline"], stderr=subprocess.DEVNULL)
    pathlib.Path("/run/cmdline").write_text(request["cmdline"] + "\n")
    run("mount", "--bind", "/run/cmdline", "/proc/cmdline")
    run("systemctl", "start", "--no-block", UNIT)


def versions():
    packages = run("dpkg-query", "-W", "-f", "${Package} ${Version}\n")
    return {"kernel": os.uname().release, **dict(line.split() for line in packages.splitlines())}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/versions":
            self.answer(lambda: json.dumps(versions()))
        else:
            self.answer(lambda: LOG.read_text(errors="replace") if LOG.exists() else "")

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/start":
            self.answer(lambda: start(json.loads(body)))
        elif self.path == "/stop":
            self.answer(stop)
        else:
            self.answer(os.sync)

    def answer(self, action):
        try:
            status, text = 200, action() or ""
        except Exception as error:
            status, text = 500, repr(error)
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer(("", 9998), Handler)
with open("/dev/console", "w") as console:
    console.write("\nipa-control: ready\n")
server.serve_forever()
