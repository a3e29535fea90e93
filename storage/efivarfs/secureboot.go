package efivarfs

import (
	"fmt"
	"path/filepath"
)

// GlobalGUID is the vendor GUID of the variables that the UEFI specification defines: EFI_GLOBAL_VARIABLE.
const GlobalGUID = "8be4df61-93ca-11d2-aa0d-00e098032b8c"

// SecureBootFile is the name of the file of the variable SecureBoot.
const SecureBootFile = "SecureBoot-" + GlobalGUID

// attributesSize is the number of bytes of attributes before the value of a variable.
const attributesSize = 4

// nonVolatile is the attribute of a variable that programs can keep across a restart: EFI_VARIABLE_NON_VOLATILE.
const nonVolatile = 1 << 0

// Names of the files of the variables whose value 1 means that nothing is enforced although SecureBoot is 1: keys can
// be enrolled without a signature, or shim starts what nobody has signed (mokutil --disable-validation).
const (
	setupModeFile = "SetupMode-" + GlobalGUID
	shimStateFile = "MokSBStateRT-605dab50-e046-4300-abb6-3dd810dd8b23"
)

// SecureBoot reports whether Secure Boot is enabled (UEFI 2.10, section 3.3) and enforced, as the kernel determines it
// (efi_get_secureboot). dir is the directory of efivarfs, and read reads a file. The error wraps the error of read.
// Firmware without Secure Boot has no such variable: what an error means is left to the caller.
func SecureBoot(dir string, read func(path string) ([]byte, error)) (bool, error) {
	path := filepath.Join(dir, SecureBootFile)
	data, err := read(path)
	if err != nil {
		return false, fmt.Errorf("read variable SecureBoot: %w", err)
	}
	if len(data) != attributesSize+1 || data[attributesSize] > 1 {
		return false, fmt.Errorf("%s: got % x, want 4 bytes of attributes and 0 or 1", path, data[:min(len(data), 16)])
	}
	if data[attributesSize] == 0 {
		return false, nil
	}
	for _, name := range []string{setupModeFile, shimStateFile} {
		// Most machines lack the variable of shim. A system that ran before could have made one that is kept.
		data, err := read(filepath.Join(dir, name))
		if err == nil && len(data) == attributesSize+1 && data[0]&nonVolatile == 0 && data[attributesSize] == 1 {
			return false, nil
		}
	}
	return true, nil
}
