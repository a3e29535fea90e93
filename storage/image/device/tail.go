package device

import "sync"

// tail keeps what is written to the end of a device in memory, because firmware looks there for a backup GPT. The
// device has zeros there until release.
type tail struct {
	start, size int64 // offset of the end, and size of the device, in bytes

	mu     sync.Mutex
	data   []byte // of the end; nil while it has no content
	within extent // of the device: the part that has content, with the gaps in it
}

// hold keeps p, which belongs to the device at off.
func (t *tail) hold(p []byte, off int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.data == nil {
		t.data = NewBuffer(int(t.size - t.start))
		t.within = extent{off, 0}
	}
	copy(t.data[off-t.start:], p)
	from, to := min(off, t.within.off), max(off+int64(len(p)), t.within.end())
	t.within = extent{from, to - from}
}

// release writes the content with write.
func (t *tail) release(write func(p []byte, off int64) error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.data == nil {
		return nil
	}
	err := write(t.data[t.within.off-t.start:t.within.end()-t.start], t.within.off)
	t.data = nil
	return err
}

// drop drops the content.
func (t *tail) drop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = nil
}
