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

// SecureBoot reports whether Secure Boot is enabled (UEFI 2.10, section 3.3). dir is the directory of efivarfs, and
// read reads a file. The error wraps that of read. Firmware without Secure Boot has no such variable: what an error
// means is left to the caller.
func SecureBoot(dir string, read func(path string) ([]byte, error)) (bool, error) {
	path := filepath.Join(dir, SecureBootFile)
	data, err := read(path)
	if err != nil {
		return false, fmt.Errorf("read variable SecureBoot: %w", err)
	}
	if len(data) != attributesSize+1 || data[attributesSize] > 1 {
		return false, fmt.Errorf("%s: got % x, want 4 bytes of attributes and 0 or 1", path, data[:min(len(data), 16)])
	}
	return data[attributesSize] == 1, nil
}
