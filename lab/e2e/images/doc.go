// Package images tests how images, containers and config drives are written to disks.
package images
