"""The exceptions that hardware manager plug-ins raise and catch."""


class RESTError(Exception):
    message = "An error occurred"

    def __init__(self, details=None, *args):
        self.details = str(details) if details is not None else self.message
        super().__init__("%s: %s" % (self.message, self.details) if details is not None else self.message, *args)


class CommandExecutionError(RESTError):
    message = "Command execution failed"


class CleaningError(RESTError):
    message = "Clean step failed"


class DeploymentError(RESTError):
    message = "Deploy step failed"


class ServicingError(RESTError):
    message = "Service step failed"


class BlockDeviceError(RESTError):
    message = "Block device error"


class BlockDeviceEraseError(RESTError):
    message = "Error erasing block device"


class DeviceNotFound(RESTError):
    message = "Device not found"


class ProtectedDeviceError(CleaningError):
    message = "Protected device"


class HardwareManagerNotFound(RESTError):
    message = "No hardware manager found"


class HardwareManagerConfigurationError(RESTError):
    message = "Hardware manager is not configured properly"


class HardwareManagerMethodNotFound(RESTError):
    message = "No hardware manager has the method"


class IncompatibleHardwareMethodError(RESTError):
    message = "Method does not support this hardware"


class InspectionError(Exception):
    pass
