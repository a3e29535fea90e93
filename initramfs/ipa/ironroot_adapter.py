"""Runs a hardware manager plug-in of ironic-python-agent as a hardware manager of ironroot.

The agent starts this program once for each request: see docs/managers.md, "The protocol". The plug-in is an entry
point of the group ironic_python_agent.hardware_managers. It is loaded and evaluated for each request, and its methods
are called with the arguments that ironic-python-agent passes.
"""

import _thread
import importlib
import importlib.metadata
import importlib.util
import json
import logging
import os
import re
import sys
import threading
import traceback

PROTOCOL = 1
GROUP = "ironic_python_agent.hardware_managers"
LISTERS = {"clean": "get_clean_steps", "deploy": "get_deploy_steps", "service": "get_service_steps"}
MAX_TIMEOUT = 604800  # seconds; ironic-python-agent has no time limit

# Methods that decide which disks are used. The agent must not list disks without them.
DISK_METHODS = {
    "filter_device", "list_block_devices", "list_block_devices_check_skip_list",
    "get_skip_list_from_node_for_disks", "get_skip_list_from_node_for_raids",
}
# Further methods that ironic-python-agent calls on hardware managers, and that ironroot does not call.
OTHER_METHODS = {
    "collect_lldp_data", "collect_system_logs", "erase_block_device", "erase_devices", "full_sync",
    "generate_tls_certificate", "get_bmc_address", "get_bmc_mac", "get_bmc_v6address", "get_boot_info", "get_cpus",
    "get_interface_info", "get_memory", "get_os_install_device", "get_system_vendor_info", "get_usb_devices",
    "list_hardware_info", "list_network_interfaces", "wait_for_disks",
}


class Refused(Exception):
    """The request cannot be served. The text is the answer."""


class Progress(logging.Handler):
    """Sends what the plug-in logs as progress of a step."""

    def __init__(self, send):
        super().__init__(logging.INFO)
        self.send = send

    def emit(self, record):
        try:
            self.send({"type": "progress", "message": record.getMessage()})
        except Exception:
            self.handleError(record)


def load(name):
    """Returns an instance of the plug-in's class."""
    if importlib.util.find_spec("ironic_python_agent.config"):
        importlib.import_module("ironic_python_agent.config")  # defines the options that its other modules read
    found = importlib.metadata.entry_points()
    if hasattr(found, "select"):
        found = found.select(group=GROUP)
    else:  # before Python 3.10
        found = found.get(GROUP, [])
    for entry in found:
        if entry.name == name:
            return entry.load()()
    raise Refused("no entry point %s in the group %s" % (name, GROUP))


def own_methods(manager):
    """Returns the names of the methods that the plug-in itself defines."""
    names = set()
    for cls in type(manager).__mro__:
        package = cls.__module__.partition(".")[0]
        if cls is not object and package != "ironic_python_agent":
            names.update(vars(cls))
    return names


def identifier(text):
    """Returns a name as the protocol permits it."""
    text = re.sub("[^A-Za-z0-9_.-]", "-", str(text))[:64]
    return text if re.match("[A-Za-z0-9]", text) else "x" + text[:63]


def steps_of(manager, kind, node, ports):
    """Returns the steps of a kind that the plug-in itself defines, as descriptions of the protocol."""
    lister = getattr(manager, LISTERS[kind], None)
    if lister is None:
        return []
    try:
        listed = lister(node, ports) or []
    except Exception as e:
        if type(e).__name__ == "IncompatibleHardwareMethodError":
            return []
        raise
    own = own_methods(manager)
    steps = []
    for s in listed:
        if s["step"] not in own:
            continue  # the agent has its own
        arguments = {
            name: {"description": str(info.get("description", "")), "required": bool(info.get("required"))}
            for name, info in (s.get("argsinfo") or {}).items()
        }
        steps.append({
            "kind": kind, "step": s["step"], "priority": int(s.get("priority") or 0),
            "interface": s.get("interface") or "deploy", "reboot_requested": bool(s.get("reboot_requested")),
            "abortable": bool(s.get("abortable")), "argsinfo": arguments, "timeout": MAX_TIMEOUT,
        })
    return steps


def describe(manager, request):
    if PROTOCOL not in request.get("protocols", []):
        raise Refused("protocols %s: want one of [%d]" % (request.get("protocols"), PROTOCOL))
    own = own_methods(manager)
    ignored = sorted(own & OTHER_METHODS)
    if ignored:
        print("methods that ironroot does not call:", ", ".join(ignored), file=sys.stderr)
    version = manager.get_version()
    # Ironic's node is not known when the agent starts.
    node = {
        "uuid": None, "properties": {}, "driver_info": {}, "driver_internal_info": {}, "instance_info": {}, "extra": {},
    }
    description = {
        "protocol": PROTOCOL, "name": identifier(version["name"]), "class": identifier(type(manager).__name__),
        "version": identifier(version["version"]),
        "steps": [s for kind in LISTERS for s in steps_of(manager, kind, node, [])],
    }
    if own & DISK_METHODS:
        description["selects_disks"] = True
    return description


def run(manager, request, send):
    kind, name = request.get("kind"), request.get("step")
    if kind not in LISTERS:
        raise Refused("kind %r: want one of %s" % (kind, ", ".join(LISTERS)))
    node, ports = dict(request.get("node") or {}), request.get("ports") or []
    for field in ("properties", "driver_info", "driver_internal_info", "instance_info", "extra"):
        node.setdefault(field, {})
    if name not in [s["step"] for s in steps_of(manager, kind, node, ports)]:
        raise Refused("no %s step %r" % (kind, name))
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    root.addHandler(Progress(send))
    return getattr(manager, name)(node, ports, **(request.get("args") or {}))


def answer(name, request, send):
    """Returns the result of a request."""
    method = request.get("method")
    if method not in ("describe", "evaluate", "run"):
        raise Refused("method %r is unknown" % method)
    manager = load(name)
    if method == "describe":
        return describe(manager, request)
    level = int(manager.evaluate_hardware_support())
    if method == "evaluate":
        return {"level": max(0, min(level, 100))}
    initialize = getattr(manager, "initialize", None) or getattr(manager, "initialize_hardware", None)
    if initialize is not None:
        initialize()
    return run(manager, request, send)


def failure(e):
    """Returns the answer for an exception."""
    text = str(e)
    details = getattr(e, "details", None)
    if details and str(details) not in text:
        text = "%s: %s" % (text, details) if text else str(details)
    if not isinstance(e, Refused) and not hasattr(e, "details"):
        traceback.print_exception(type(e), e, e.__traceback__)
        text = "%s: %s" % (type(e).__name__, text)
    message = {"type": "error", "message": text or type(e).__name__}
    if type(e).__name__ == "IncompatibleHardwareMethodError":
        message["incompatible"] = True
    return message


def plain(value):
    """Returns what the agent receives of a value that JSON does not have."""
    if hasattr(value, "serialize"):
        return value.serialize()
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    return str(value)


def main(name):
    # The modules that stand in for missing ones are found last.
    sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "shim"))
    # The plug-in and its programs read no requests: those that ask get the end of the file.
    requests = os.fdopen(os.dup(0))
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    # What the plug-in and its programs print is no message.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    lock = threading.Lock()

    def send(message):
        text = json.dumps(message, default=plain)
        with lock:
            out.write(text + "\n")
            out.flush()

    def await_cancel():
        for line in requests:
            if json.loads(line).get("method") == "cancel":
                _thread.interrupt_main()

    try:
        request = json.loads(requests.readline())
        threading.Thread(target=await_cancel, daemon=True).start()
        message = {"type": "result", "result": answer(name, request, send)}
        json.dumps(message, default=plain)
    except KeyboardInterrupt:
        message = {"type": "error", "message": "cancelled"}
    except (Exception, SystemExit) as e:
        message = failure(e)
    send(message)
    sys.stderr.flush()
    os._exit(0)  # threads and programs of the plug-in end with this process
