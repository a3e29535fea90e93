// Package oci writes the files of builds as an OCI image layout with one image for each architecture, and verifies such
// layouts (OCI Image Format 1.1, image-layout.md).
//
// Each image has one layer, a tar file with the files at top level. So a registry serves them, and a container runtime
// can mount them as a volume. The layer is a gzip file, which all readers support, but not compressed again, because
// kernel and initramfs are compressed. The same files give the same bytes.
//
// # One layer
//
// The proposal of Metal3 for a downloader reads kernel and initramfs from the single layer of a container image. Such
// an image is also what Kubernetes mounts as a volume and what every registry accepts; artefacts with types of their
// own are neither. go-containerregistry validates no other layers than gzip files.
package oci
