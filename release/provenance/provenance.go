// Package provenance writes and reads statements about how artefacts were built: in-toto Statement v1
// (https://in-toto.io/Statement/v1) with the predicate SLSA Provenance v1 (https://slsa.dev/provenance/v1).
//
// The statements have what is true of a build on any machine: its parameters and what it was made from. They meet SLSA
// Build Level 1. Higher levels require a hosted builder that makes and signs them.
package provenance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Suffix is the end of the name of a statement. The rest is the name of the artefact.
const Suffix = ".provenance.json"

// Identifiers of types.
const (
	statementType = "https://in-toto.io/Statement/v1"
	predicateType = "https://slsa.dev/provenance/v1"
	builderID     = "urn:ironroot:builder:local"
	buildTypes    = "urn:ironroot:build:"
)

// maxStatement limits a statement that is read, in bytes.
const maxStatement = 16 << 20

// Resource is an artefact or something that it was made from.
type Resource struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest,omitempty"` // in hex, by algorithm
}

// Definition describes a build.
type Definition struct {
	Command      string         // of this program: "image", "iso", "uki" or "layout"
	Parameters   map[string]any // of the command
	Internal     map[string]any // what the builder chose
	Dependencies []Resource
}

type statement struct {
	Type          string     `json:"_type"`
	Subject       []Resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     predicate  `json:"predicate"`
}

type predicate struct {
	Build buildDefinition `json:"buildDefinition"`
	Run   runDetails      `json:"runDetails"`
}

type buildDefinition struct {
	Type         string         `json:"buildType"`
	Parameters   map[string]any `json:"externalParameters"`
	Internal     map[string]any `json:"internalParameters,omitempty"`
	Dependencies []Resource     `json:"resolvedDependencies"`
}

type runDetails struct {
	Builder builder `json:"builder"`
}

type builder struct {
	ID      string            `json:"id"`
	Version map[string]string `json:"version"`
}

// Encode returns the statement about artefacts. version is this program's. Times and names of a build are left out:
// they would differ in a second build.
func Encode(artefacts []Resource, d Definition, version string) ([]byte, error) {
	dependencies := slices.Clone(d.Dependencies)
	slices.SortFunc(dependencies, func(a, b Resource) int {
		return strings.Compare(a.URI+"\x00"+a.Name, b.URI+"\x00"+b.Name)
	})
	s := statement{
		Type: statementType, Subject: artefacts, PredicateType: predicateType,
		Predicate: predicate{
			Build: buildDefinition{
				Type: buildTypes + d.Command + ":v1", Parameters: d.Parameters, Internal: d.Internal,
				Dependencies: dependencies,
			},
			Run: runDetails{builder{ID: builderID, Version: map[string]string{"ironroot": version}}},
		},
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	err := e.Encode(s)
	return out.Bytes(), err
}

// Subjects returns the SHA-256, in hex, of the files that a statement is about, by name.
func Subjects(data []byte) (map[string]string, error) {
	if len(data) > maxStatement {
		return nil, fmt.Errorf("provenance: got %d bytes, want at most %d", len(data), maxStatement)
	}
	var s statement
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("provenance: %w", err)
	}
	if s.Type != statementType || s.PredicateType != predicateType {
		return nil, fmt.Errorf("provenance: got a statement %q with %q, want %q with %q",
			s.Type, s.PredicateType, statementType, predicateType)
	}
	sums := map[string]string{}
	for _, subject := range s.Subject {
		if _, twice := sums[subject.Name]; twice {
			return nil, fmt.Errorf("provenance: is about %s twice", subject.Name)
		}
		sums[subject.Name] = subject.Digest["sha256"]
	}
	return sums, nil
}
