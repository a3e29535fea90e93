"""The base class of hardware manager plug-ins, and what else of the module they need."""

import abc

from ironic_python_agent import errors


class HardwareSupport:
    NONE = 0
    GENERIC = 1
    MAINLINE = 2
    SERVICE_PROVIDER = 3


class HardwareType:
    MAC_ADDRESS = "mac_address"


class HardwareManager(metaclass=abc.ABCMeta):
    """A hardware manager. The plug-in's class defines the methods that it has."""

    @abc.abstractmethod
    def evaluate_hardware_support(self):
        pass

    def initialize(self):
        pass

    def get_clean_steps(self, node, ports):
        return []

    def get_deploy_steps(self, node, ports):
        return []

    def get_service_steps(self, node, ports):
        return []

    def get_version(self):
        return {
            "name": getattr(self, "HARDWARE_MANAGER_NAME", type(self).__name__),
            "version": getattr(self, "HARDWARE_MANAGER_VERSION", "1.0"),
        }


def dispatch_to_managers(method, *args, **kwargs):
    """Fails: other hardware managers are those of ironroot. The package ironic-python-agent in the root has its own."""
    raise errors.HardwareManagerMethodNotFound(
        "%s: install ironic-python-agent in the manager root to call other hardware managers" % method)


def dispatch_to_all_managers(method, *args, **kwargs):
    return dispatch_to_managers(method)


def list_all_block_devices(*args, **kwargs):
    return dispatch_to_managers("list_block_devices")
