package conductor

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"
)

// ConfigDrive returns a config drive in the form that Ironic sends to the agent: an ISO 9660 image with the label
// config-2, compressed by gzip and encoded in base64. metaData becomes openstack/latest/meta_data.json, userData
// becomes openstack/latest/user_data.
func ConfigDrive(metaData map[string]any, userData []byte) (string, error) {
	meta, err := json.Marshal(metaData)
	if err != nil {
		return "", fmt.Errorf("config drive: %w", err)
	}
	image, err := ISO("config-2", map[string][]byte{
		"openstack/latest/meta_data.json": meta, "openstack/latest/user_data": userData,
		"openstack/latest/network_data.json": []byte("{}"),
	})
	if err != nil {
		return "", fmt.Errorf("config drive: %w", err)
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(image); err != nil {
		return "", fmt.Errorf("config drive: %w", err)
	}
	if err := w.Close(); err != nil {
		return "", fmt.Errorf("config drive: %w", err)
	}
	return base64.StdEncoding.EncodeToString(packed.Bytes()), nil
}

// ISO returns an ISO 9660 image with Rock Ridge names. The keys of files are slash-separated paths.
func ISO(label string, files map[string][]byte) (image []byte, err error) {
	const blockSize = 2048
	dir, err := os.MkdirTemp("", "iso-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	tree := filepath.Join(dir, "tree")
	for name, content := range files {
		name = filepath.Join(tree, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(name, content, 0o644); err != nil {
			return nil, err
		}
	}
	out, err := os.Create(filepath.Join(dir, "image.iso"))
	if err != nil {
		return nil, err
	}
	defer out.Close() //nolint:errcheck // read back before, and removed after
	fs, err := iso9660.Create(file.New(out, false), 0, 0, blockSize, tree)
	if err != nil {
		return nil, err
	}
	if err := fs.Finalize(iso9660.FinalizeOptions{RockRidge: true, VolumeIdentifier: label}); err != nil {
		return nil, err
	}
	return os.ReadFile(out.Name())
}
