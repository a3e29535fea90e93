package erase

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"ironroot/storage/block"
)

const blockSize = 4 << 20 // bytes per write

// overwrite writes the whole device: random passes with a new key each, then zeros. It uses direct I/O, so that each
// error is reported by the write that failed.
func overwrite(ctx context.Context, path string, o Options) (err error) {
	passes := max(0, o.Iterations)
	if o.Zeroize {
		passes++
	}
	if passes == 0 {
		return fmt.Errorf("%w: no overwrite pass requested", ErrUnsupported)
	}
	f, size, err := openExclusive(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	buffer, err := unix.Mmap(-1, 0, blockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("buffer of %d bytes: %w", blockSize, err)
	}
	defer func() { err = errors.Join(err, unix.Munmap(buffer)) }()
	for pass := range passes {
		fill, err := filler(pass < o.Iterations)
		if err != nil {
			return err
		}
		progress := func(done int64) {
			if o.Progress != nil {
				o.Progress(int64(pass)*size+done, int64(passes)*size)
			}
		}
		if err := writePass(ctx, f, size, buffer, fill, progress); err != nil {
			return fmt.Errorf("pass %d of %d: %w", pass+1, passes, err)
		}
		if err := f.Sync(); err != nil {
			return fmt.Errorf("pass %d of %d: %w", pass+1, passes, err)
		}
		ReportProgress(ctx)
	}
	return block.Flush(ctx, path)
}

// filler returns a function that fills a buffer with the next random bytes or with zeros.
func filler(random bool) (func([]byte), error) {
	if !random {
		return func(b []byte) { clear(b) }, nil
	}
	key := make([]byte, 16+aes.BlockSize)
	if _, err := rand.Read(key); err != nil {
		return nil, err
	}
	engine, err := aes.NewCipher(key[:16])
	if err != nil {
		return nil, err
	}
	stream := cipher.NewCTR(engine, key[16:])
	// The plaintext does not matter: the previous content of the buffer serves as well as zeros.
	return func(b []byte) { stream.XORKeyStream(b, b) }, nil
}

func writePass(
	ctx context.Context, f *os.File, size int64, buffer []byte, fill func([]byte), progress func(int64),
) error {
	for offset := int64(0); offset < size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		part := buffer[:min(int64(len(buffer)), size-offset)]
		fill(part)
		if _, err := f.WriteAt(part, offset); err != nil {
			return fmt.Errorf("write %d bytes at byte %d: %w", len(part), offset, err)
		}
		offset += int64(len(part))
		ReportProgress(ctx)
		progress(offset)
	}
	return nil
}

// openExclusive opens a device for direct writes. It fails with EBUSY if the device is in use: mounted, with a mounted
// partition, or a member of an array or a volume.
func openExclusive(path string) (*os.File, int64, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_EXCL|directIO, 0)
	if errors.Is(err, unix.EINVAL) { // a device without direct I/O
		f, err = os.OpenFile(path, os.O_RDWR|unix.O_EXCL, 0)
	}
	if err != nil {
		return nil, 0, err
	}
	size, _, err := block.Geometry(f)
	if err == nil && size == 0 {
		err = fmt.Errorf("%s has no size", path)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, size, nil
}
