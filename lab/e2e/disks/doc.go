// Package disks tests steps that erase or test disks, on buses of all kinds.
package disks
