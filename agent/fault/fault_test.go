package fault

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// rows are the types of errors with the codes and messages of the protocol. Details are the agent's own.
var rows = []struct {
	err     *Error
	kind    string
	code    int
	message string
	details string
}{
	{REST("no %s", "x"), "RESTError", 500, "An error occurred", "no x"},
	{InvalidCommand("Unknown command: %s", "x"), "InvalidCommandError", 400, "Invalid command", "Unknown command: x"},
	{InvalidCommandParams("x"), "InvalidCommandParamsError", 400, "Invalid command parameters", "x"},
	{NotFound("Extension", "x"), "RequestedObjectNotFoundError", 404, "Not found", "Extension with id x not found."},
	{CommandExecution(io.EOF), "CommandExecutionError", 500, "Command execution failed", "EOF"},
	{AgentBusy("prepare_image"), "AgentIsBusy", 409, "Agent is busy", "executing command prepare_image"},
	{
		ImageDownload("i", io.EOF), "ImageDownloadError", 500, "Error downloading image",
		"Download of image i failed: EOF",
	},
	{
		ImageDownloadFatal("i", io.EOF), "ImageDownloadFatalError", 500, "Error downloading image",
		"Download of image i failed: EOF",
	},
	{
		ImageDownloadTimeout("i", io.EOF), "ImageDownloadTimeoutError", 408, "Image download timeout",
		"Download of image i failed: EOF",
	},
	{
		ImageChecksum("http://h/i", "i", "aa", "bb"), "ImageChecksumError", 500, "Error verifying image checksum",
		"checksum of image i from http://h/i: expected aa, computed bb",
	},
	{
		ImageWrite("/dev/sda", io.EOF), "ImageWriteError", 500, "Error writing image to device",
		"writing image to device /dev/sda: EOF",
	},
	{ISCSI("%w", io.EOF), "ISCSIError", 500, "Error starting iSCSI target", "EOF"},
	{SystemReboot(io.EOF), "SystemRebootError", 500, "Error rebooting system", "EOF"},
	{BlockDeviceErase("x"), "BlockDeviceEraseError", 500, "Error erasing block device", "x"},
	{VirtualMediaBoot("x"), "VirtualMediaBootError", 500, "Configuring agent from virtual media failed", "x"},
	{HardwareManagerNotFound("x"), "HardwareManagerNotFound", 500, "No valid HardwareManager found", "x"},
	{
		HardwareManagerConfiguration("x"), "HardwareManagerConfigurationError", 500,
		"Hardware manager configuration error", "x",
	},
	{
		ContainerNotPermitted("a/b"), "ContainerNotPermittedError", 500, "Container image not permitted",
		"Container image a/b is not in [container]allowed_containers and [container]allow_arbitrary_containers is " +
			"not enabled.",
	},
	{
		MethodNotFound("erase"), "HardwareManagerMethodNotFound", 500, "No HardwareManager found to handle method",
		"Could not find method: erase",
	},
	{
		VersionMismatch(map[string]string{"a": "2"}, map[string]string{"a": "1"}), "VersionMismatch", 409,
		"Hardware managers version mismatch, reload agent with correct version",
		"Current versions: map[a:2], versions used by ironic: map[a:1]",
	},
	{Cleaning("x"), "CleaningError", 500, "Clean step failed", "x"},
	{Deployment("x"), "DeploymentError", 500, "Deploy step failed", "x"},
	{Servicing("x"), "ServicingError", 500, "Service step failed", "x"},
	{ProtectedDevice("/dev/sda holds VMFS"), "ProtectedDeviceError", 500, "/dev/sda holds VMFS", "/dev/sda holds VMFS"},
	{InvalidImage("x"), "InvalidImage", 500, "The provided image is not valid for use", "x"},
	{
		FileSystemNotSupported("x", io.EOF), "FileSystemNotSupported", 500, "Failed to create a file system",
		"file system x is not supported: EOF",
	},
	{
		DeviceNotFound("x"), "DeviceNotFound", 404,
		"Error finding the disk or partition device to deploy the image onto", "x",
	},
	{ClockSync("x"), "ClockSyncError", 500, "Error syncing system clock", "x"},
	{WrongParams("x"), "TypeError", 500, "Wrong parameters", "x"},
	{InvalidFirmwareImageConfig("x"), "InvalidFirmwareImageConfig", 500, "An error occurred", "x"},
	{InvalidFirmwareSettingsConfig("x"), "InvalidFirmwareSettingsConfig", 500, "An error occurred", "x"},
	{InvalidURLScheme("x"), "InvalidURLScheme", 500, "An error occurred", "x"},
	{DuplicateComponentFlavor("x"), "DuplicateComponentFlavor", 500, "An error occurred", "x"},
	{DuplicateDeviceID("x"), "DuplicateDeviceID", 500, "An error occurred", "x"},
	{MismatchChecksum("x"), "MismatchChecksumError", 500, "An error occurred", "x"},
	{MismatchComponentFlavor("x"), "MismatchComponentFlavor", 500, "An error occurred", "x"},
	{MismatchFWVersion("x"), "MismatchFWVersion", 500, "An error occurred", "x"},
	{UnsupportedConfigByMstflint("x"), "UnSupportedConfigByMstflintPackage", 500, "An error occurred", "x"},
	{UnsupportedConfigByFirmware("x"), "UnSupportedConfigByFW", 500, "An error occurred", "x"},
}

// Parity: A9
func TestTypes(t *testing.T) {
	for _, row := range rows {
		t.Run(row.kind, func(t *testing.T) {
			text, err := json.Marshal(row.err)
			if err != nil {
				t.Fatal(err)
			}
			var got map[string]any
			if err := json.Unmarshal(text, &got); err != nil {
				t.Fatal(err)
			}
			want := map[string]any{
				"type": row.kind, "code": float64(row.code), "message": row.message, "details": row.details,
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("serialised error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFrom(t *testing.T) {
	cause := errors.New("no space")
	inner := ImageWrite("/dev/sda", cause)
	for prefix, err := range map[string]error{
		"": inner, "disk 2: ": fmt.Errorf("disk 2: %w", inner),
		"step: disk 2: ": fmt.Errorf("step: %w", fmt.Errorf("disk 2: %w", inner)),
	} {
		got := From(err)
		if got.Type != inner.Type || got.Code != inner.Code || got.Message != inner.Message ||
			got.Details != prefix+inner.Details {
			t.Errorf("From(%v): got %s %d %q %q, want the fault with %q before its details",
				err, got.Type, got.Code, got.Message, got.Details, prefix)
		}
		if !errors.Is(got, cause) {
			t.Errorf("From(%v): the cause %v is lost", err, cause)
		}
	}
	if !errors.Is(inner, cause) {
		t.Errorf("the cause %v is lost", cause)
	}
	got := From(cause)
	if got.Type != "CommandExecutionError" || got.Details != "no space" {
		t.Errorf("From(plain error): got %s %q, want CommandExecutionError \"no space\"", got.Type, got.Details)
	}
	if From(nil) != nil {
		t.Error("From(nil): got an error")
	}
	if want := "Agent is busy: executing command x"; AgentBusy("x").Error() != want {
		t.Errorf("text: got %q, want %q", AgentBusy("x").Error(), want)
	}
}
