package fault

import "net/http"

const (
	internal = http.StatusInternalServerError
	generic  = "An error occurred"
)

// REST returns the generic error, for example if a checksum cannot be determined.
func REST(format string, args ...any) *Error {
	return wrap("RESTError", internal, generic, format, args)
}

// InvalidCommand returns the error of a malformed, unknown or rejected command name.
func InvalidCommand(format string, args ...any) *Error {
	return wrap("InvalidCommandError", http.StatusBadRequest, "Invalid command", format, args)
}

// InvalidCommandParams returns the error of an invalid parameter value.
func InvalidCommandParams(format string, args ...any) *Error {
	return wrap("InvalidCommandParamsError", http.StatusBadRequest, "Invalid command parameters", format, args)
}

// NotFound returns the error of an object that does not exist.
func NotFound(kind, id string) *Error {
	return wrap("RequestedObjectNotFoundError", http.StatusNotFound, "Not found", "%s with id %s not found.",
		[]any{kind, id})
}

// CommandExecution returns the error of a command that failed with an error outside the protocol. Details are its text.
func CommandExecution(err error) *Error {
	return wrap("CommandExecutionError", internal, "Command execution failed", "%w", []any{err})
}

// AgentBusy rejects a command while the named one is running.
func AgentBusy(name string) *Error {
	return wrap("AgentIsBusy", http.StatusConflict, "Agent is busy", "executing command %s", []any{name})
}

// ImageDownload returns the error of a failed download.
func ImageDownload(id string, err error) *Error {
	return imageDownload("ImageDownloadError", id, err)
}

// ImageDownloadFatal returns the error of a download that a server answered with a final status other than 200, such as
// 404.
func ImageDownloadFatal(id string, err error) *Error {
	return imageDownload("ImageDownloadFatalError", id, err)
}

func imageDownload(name, id string, err error) *Error {
	return wrap(name, internal, "Error downloading image", "Download of image %s failed: %w", []any{id, err})
}

// ImageDownloadTimeout returns the error of a download that exceeded the configured time limit.
func ImageDownloadTimeout(id string, err error) *Error {
	return wrap("ImageDownloadTimeoutError", http.StatusRequestTimeout, "Image download timeout",
		"Download of image %s failed: %w", []any{id, err})
}

// ImageChecksum returns the error of an image with a wrong checksum. location is its URL or file.
func ImageChecksum(location, id, want, got string) *Error {
	return wrap("ImageChecksumError", internal, "Error verifying image checksum",
		"checksum of image %s from %s: expected %s, computed %s", []any{id, location, want, got})
}

// ImageWrite returns the error of an image that could not be written to device.
func ImageWrite(device string, err error) *Error {
	return wrap("ImageWriteError", internal, "Error writing image to device", "writing image to device %s: %w",
		[]any{device, err})
}

// SystemReboot returns the error of a machine that could not be restarted or powered off.
func SystemReboot(err error) *Error {
	return wrap("SystemRebootError", internal, "Error rebooting system", "%w", []any{err})
}

// BlockDeviceErase returns the error of a device that could not be erased.
func BlockDeviceErase(format string, args ...any) *Error {
	return wrap("BlockDeviceEraseError", internal, "Error erasing block device", format, args)
}

// VirtualMediaBoot returns the error of configuration that could not be read from virtual media.
func VirtualMediaBoot(format string, args ...any) *Error {
	return wrap("VirtualMediaBootError", internal, "Configuring agent from virtual media failed", format, args)
}

// HardwareManagerNotFound returns the error of a machine that no hardware manager supports.
func HardwareManagerNotFound(format string, args ...any) *Error {
	return wrap("HardwareManagerNotFound", internal, "No valid HardwareManager found", format, args)
}

// HardwareManagerConfiguration returns the error of a hardware manager whose configuration is not valid.
func HardwareManagerConfiguration(format string, args ...any) *Error {
	return wrap("HardwareManagerConfigurationError", internal, "Hardware manager configuration error", format, args)
}

// ContainerNotPermitted returns the error of a container image that the configuration does not allow to run.
func ContainerNotPermitted(image string) *Error {
	return wrap("ContainerNotPermittedError", internal, "Container image not permitted",
		"Container image %s is not in [container]allowed_containers and [container]allow_arbitrary_containers is not "+
			"enabled.", []any{image})
}

// MethodNotFound returns the error of a step or method that no hardware manager provides.
func MethodNotFound(method string) *Error {
	return wrap("HardwareManagerMethodNotFound", internal, "No HardwareManager found to handle method",
		"Could not find method: %s", []any{method})
}

// VersionMismatch returns the error of a step that was planned with other versions of the hardware managers. The maps
// contain each manager's name and version.
func VersionMismatch(agent, node map[string]string) *Error {
	return wrap("VersionMismatch", http.StatusConflict,
		"Hardware managers version mismatch, reload agent with correct version",
		"Current versions: %v, versions used by ironic: %v", []any{agent, node})
}

// Cleaning returns the error of a clean step that failed unexpectedly.
func Cleaning(format string, args ...any) *Error {
	return wrap("CleaningError", internal, "Clean step failed", format, args)
}

// Deployment returns the error of a deploy step that failed unexpectedly.
func Deployment(format string, args ...any) *Error {
	return wrap("DeploymentError", internal, "Deploy step failed", format, args)
}

// Servicing returns the error of a service step that failed unexpectedly.
func Servicing(format string, args ...any) *Error {
	return wrap("ServicingError", internal, "Service step failed", format, args)
}

// ProtectedDevice returns the error of a device with a guarded shared file system. Message and details are the same.
func ProtectedDevice(format string, args ...any) *Error {
	err := wrap("ProtectedDeviceError", internal, "", format, args)
	err.Message = err.Details
	return err
}

// InvalidImage returns the error of an image that failed its inspection.
func InvalidImage(format string, args ...any) *Error {
	return wrap("InvalidImage", internal, "The provided image is not valid for use", format, args)
}

// FileSystemNotSupported returns the error of a file system that cannot be created; err lists the supported ones.
func FileSystemNotSupported(name string, err error) *Error {
	return wrap("FileSystemNotSupported", internal, "Failed to create a file system",
		"file system %s is not supported: %w", []any{name, err})
}

// DeviceNotFound returns the error of a deployment without a matching disk or partition.
func DeviceNotFound(format string, args ...any) *Error {
	return wrap("DeviceNotFound", http.StatusNotFound,
		"Error finding the disk or partition device to deploy the image onto", format, args)
}

// ISCSI returns the error of an iSCSI target that could not be started or removed.
func ISCSI(format string, args ...any) *Error {
	return wrap("ISCSIError", internal, "Error starting iSCSI target", format, args)
}

// SoftwareRAID returns the error of a RAID configuration that is not valid, or could not be created or deleted.
func SoftwareRAID(format string, args ...any) *Error {
	return wrap("SoftwareRAIDError", internal, "Software RAID caused unknown error", format, args)
}

// ClockSync returns the error of a clock that could not be set.
func ClockSync(format string, args ...any) *Error {
	return wrap("ClockSyncError", internal, "Error syncing system clock", format, args)
}

// WrongParams returns the error of an unknown or missing parameter. The conductor matches exactly this type and then
// falls back to an older set of parameters.
func WrongParams(format string, args ...any) *Error {
	return wrap("TypeError", internal, "Wrong parameters", format, args)
}
