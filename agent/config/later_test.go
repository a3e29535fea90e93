package config

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// An option is marked as not used yet exactly when no code reads it.
func TestLater(t *testing.T) {
	var code strings.Builder
	for _, folder := range []string{"..", "../../uinit"} { // the network is started by PID 1
		err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || path == "../config/clone.go" {
				return err
			}
			data, err := os.ReadFile(path)
			code.Write(data)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range options() {
		if o.group != defaultGroup || o.flagOnly { // flags are main's business; names of groups' fields are not telling
			continue
		}
		field := reflect.TypeFor[Config]().FieldByIndex(o.index).Name
		used := regexp.MustCompile(`\.` + field + `\b`).MatchString(code.String())
		if used == o.later {
			t.Errorf("%s: read by some code: %v, marked as not used yet: %v", o.fullName(), used, o.later)
		}
	}
}
