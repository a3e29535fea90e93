package erase

import (
	"os"

	"ironroot/storage/nvme"
	"ironroot/storage/scsi"
)

// opener opens devices for commands of their own.
type opener interface {
	nvme(path string) (adminDevice, error)
	// sg opens a disk for SCSI commands, and returns its size in bytes.
	sg(path string) (scsi.Transport, *os.File, int64, error)
}

// sgOpener is the method sg of an [opener].
type sgOpener func(path string) (scsi.Transport, *os.File, int64, error)

// exclusive opens devices that nobody else uses: before most commands that erase, the kernel does not check whether a
// device is mounted.
type exclusive struct{}

func (exclusive) nvme(path string) (adminDevice, error) {
	f, _, err := openExclusive(path)
	if err != nil {
		return nil, err
	}
	return nvmeFile{nvme.Device{File: f}}, nil
}

func (exclusive) sg(path string) (scsi.Transport, *os.File, int64, error) {
	f, size, err := openExclusive(path)
	if err != nil {
		return nil, nil, 0, err
	}
	return scsi.SG{File: f}, f, size, nil
}

// readOnly opens devices that others can use, for commands that change nothing. It does not read the size.
type readOnly struct{}

func (readOnly) nvme(path string) (adminDevice, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return nvmeFile{nvme.Device{File: f}}, nil
}

func (readOnly) sg(path string) (scsi.Transport, *os.File, int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, 0, err
	}
	return scsi.SG{File: f}, f, 0, nil
}
