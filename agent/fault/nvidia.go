package fault

// The errors of the steps for network cards of NVIDIA. Ironic and operators' tools know them by these names. The steps
// use the texts of ironic-python-agent where it has one.

// InvalidFirmwareImageConfig returns the error of an argument images that is not valid.
func InvalidFirmwareImageConfig(format string, args ...any) *Error {
	return wrap("InvalidFirmwareImageConfig", internal, generic, format, args)
}

// InvalidFirmwareSettingsConfig returns the error of an argument settings that is not valid.
func InvalidFirmwareSettingsConfig(format string, args ...any) *Error {
	return wrap("InvalidFirmwareSettingsConfig", internal, generic, format, args)
}

// InvalidURLScheme returns the error of a firmware image's URL that has another scheme than file, http or https.
func InvalidURLScheme(format string, args ...any) *Error {
	return wrap("InvalidURLScheme", internal, generic, format, args)
}

// DuplicateComponentFlavor returns the error of two firmware images for the same PSID.
func DuplicateComponentFlavor(format string, args ...any) *Error {
	return wrap("DuplicateComponentFlavor", internal, generic, format, args)
}

// DuplicateDeviceID returns the error of two settings for the same device.
func DuplicateDeviceID(format string, args ...any) *Error {
	return wrap("DuplicateDeviceID", internal, generic, format, args)
}

// MismatchChecksum returns the error of a firmware image with another checksum.
func MismatchChecksum(format string, args ...any) *Error {
	return wrap("MismatchChecksumError", internal, generic, format, args)
}

// MismatchComponentFlavor returns the error of a firmware image with another PSID.
func MismatchComponentFlavor(format string, args ...any) *Error {
	return wrap("MismatchComponentFlavor", internal, generic, format, args)
}

// MismatchFWVersion returns the error of a firmware image of another version.
func MismatchFWVersion(format string, args ...any) *Error {
	return wrap("MismatchFWVersion", internal, generic, format, args)
}

// UnsupportedConfigByMstflint returns the error of a setting that mstconfig does not know.
func UnsupportedConfigByMstflint(format string, args ...any) *Error {
	return wrap("UnSupportedConfigByMstflintPackage", internal, generic, format, args)
}

// UnsupportedConfigByFirmware returns the error of a setting that the firmware of a card does not have.
func UnsupportedConfigByFirmware(format string, args ...any) *Error {
	return wrap("UnSupportedConfigByFW", internal, generic, format, args)
}
