package containers

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"go.yaml.in/yaml/v3"

	"ironroot/internal/bounded"
)

// Limits of a steps file. It is parsed whenever Ironic lists steps.
const (
	maxFileBytes   = 256 << 10
	maxFileSteps   = 200
	maxFileAliases = 200 // each repeats a part of the file
	maxOptionBytes = 4 << 10
	maxOptions     = 64 // of one list
)

// fileStep is a step of the steps file, as the operator wrote it. All fields but the options are required.
type fileStep struct {
	Name            *string `yaml:"name"`
	Image           *string `yaml:"image"`
	Interface       *string `yaml:"interface"`
	RebootRequested *bool   `yaml:"reboot_requested"`
	Abortable       *bool   `yaml:"abortable"`
	Priority        *int    `yaml:"priority"`
	PullOptions     words   `yaml:"pull_options"`
	RunOptions      words   `yaml:"run_options"`
}

// words are options, separated by white space in a text or in the texts of a list.
type words []string

// UnmarshalYAML implements [yaml.Unmarshaler].
func (w *words) UnmarshalYAML(value *yaml.Node) error {
	texts := []string{value.Value}
	if value.Kind != yaml.ScalarNode {
		if err := value.Decode(&texts); err != nil {
			return err
		}
	}
	split, err := splitWords(texts)
	if err != nil {
		return fmt.Errorf("line %d: %w", value.Line, err)
	}
	*w = split
	return nil
}

// splitWords returns the words of texts. A single option with its value can be several words.
func splitWords(texts []string) ([]string, error) {
	var split []string
	for _, text := range texts {
		if len(text) > maxOptionBytes {
			return nil, fmt.Errorf("option of %d bytes, want at most %d", len(text), maxOptionBytes)
		}
		split = append(split, strings.Fields(text)...)
		if len(split) > maxOptions {
			return nil, fmt.Errorf("more than %d options", maxOptions)
		}
	}
	return split, nil
}

// readFile reads the steps of the file at path. Without the file there are none.
func readFile(path string) ([]fileStep, error) {
	data, err := bounded.ReadFile(path, maxFileBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	steps, err := parseFile(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return steps, nil
}

// parseFile parses the YAML of a steps file: an object whose key steps is a list of steps. It returns an error if a
// step lacks a key. Other keys are ignored, as by ironic-python-agent.
func parseFile(data []byte) ([]fileStep, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	err := decoder.Decode(&document)
	if errors.Is(err, io.EOF) { // no document
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := decoder.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, errors.Join(errors.New("more than one document"), err)
	}
	if aliases := countAliases(&document); aliases > maxFileAliases {
		return nil, fmt.Errorf("%d aliases, want at most %d", aliases, maxFileAliases)
	}
	var file struct {
		Steps []fileStep `yaml:"steps"`
	}
	if err := document.Decode(&file); err != nil {
		return nil, err
	}
	if len(file.Steps) > maxFileSteps {
		return nil, fmt.Errorf("%d steps, want at most %d", len(file.Steps), maxFileSteps)
	}
	names := map[string]bool{}
	for i, step := range file.Steps {
		if err := step.check(); err != nil {
			return nil, fmt.Errorf("step %d: %w", i+1, err)
		}
		if names[*step.Name] {
			return nil, fmt.Errorf("two steps have the name %q", *step.Name)
		}
		names[*step.Name] = true
	}
	return file.Steps, nil
}

// countAliases returns the number of aliases in a YAML document. It does not follow them.
func countAliases(node *yaml.Node) int {
	count := 0
	if node.Kind == yaml.AliasNode {
		count++
	}
	for _, child := range node.Content {
		count += countAliases(child)
	}
	return count
}

// check returns an error that names the first missing key.
func (s fileStep) check() error {
	name := "without a name"
	if s.Name != nil && *s.Name != "" {
		name = fmt.Sprintf("%q", *s.Name)
	}
	for _, key := range []struct {
		name    string
		missing bool
	}{
		{"name", s.Name == nil || *s.Name == ""},
		{"image", s.Image == nil || *s.Image == ""},
		{"interface", s.Interface == nil || *s.Interface == ""},
		{"reboot_requested", s.RebootRequested == nil},
		{"abortable", s.Abortable == nil},
		{"priority", s.Priority == nil},
	} {
		if key.missing {
			return fmt.Errorf("%s: key '%s' missing", name, key.name)
		}
	}
	if *s.Priority < 0 {
		return fmt.Errorf("%s: priority %d, want at least 0", name, *s.Priority)
	}
	return nil
}
