package external

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"ironroot/internal/confine"
)

// CallsName is the name of a file in the parent directory of [Dir] and [RootsDir]. It contains a JSON object: the keys
// are base names of managers' executables, the values are the further system calls that each may make. The file exists
// only if the operator permitted such calls when the image was built.
const CallsName = "manager-calls.json"

// readCalls returns the content of the file with [CallsName] that belongs to a directory of managers or manager roots.
func readCalls(dir string) (calls map[string][]string, err error) {
	name := filepath.Join(filepath.Dir(filepath.Clean(dir)), CallsName)
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = checkOrigin(name)
	}
	if err == nil {
		err = json.Unmarshal(text, &calls)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for manager, names := range calls {
		if err := confine.CheckCalls(names); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", name, manager, err)
		}
	}
	return calls, nil
}
