package image

import (
	"bytes"
	"fmt"

	"ironroot/storage/image/qcow2"
)

// packed is a compressed cluster in memory.
type packed struct {
	guest int64
	data  []byte
}

// place hands out the work that a chunk of a qcow2 file makes.
func (u *unpacker) place(c *chunk, submit func(func() error) error) error {
	if limit := maxFile(u.w.target.size); c.end() > limit {
		return fileTooLong(formatQcow2, limit)
	}
	u.passSeals(c)
	if err := u.passTables(c); err != nil || u.late.failed() {
		return err
	}
	var open []qcow2.Run
	var batch []packed
	runs := u.runsOf(c)
	for _, r := range runs {
		end := r.Host + r.HostLen(u.m.Header)
		if end > c.end() {
			open = append(open, r)
		}
		switch {
		case !r.Compressed:
			if err := u.placePlain(c, r, submit); err != nil {
				return err
			}
		case end <= c.end():
			if !u.follows(batch, r) {
				if err := u.placePacked(batch, submit); err != nil {
					return err
				}
				batch = nil
			}
			batch = append(batch, packed{r.Guest, u.bytes(c, r)})
		}
	}
	if err := u.placePacked(batch, submit); err != nil {
		return err
	}
	u.keep(c, open)
	return u.spoolRest(c, runs)
}

func (u *unpacker) passSeals(c *chunk) {
	for len(u.ahead) > 0 && u.ahead[0].end() <= c.off {
		u.ahead = u.ahead[1:]
	}
	for _, s := range u.ahead {
		if s.off >= c.end() {
			return
		}
		s.pass(c.off, c.data)
	}
}

// runsOf returns the runs that have bytes in c, those first that began before it.
func (u *unpacker) runsOf(c *chunk) []qcow2.Run {
	runs := u.open
	for u.next < len(u.m.Runs) && u.m.Runs[u.next].Host < c.end() {
		runs = append(runs, u.m.Runs[u.next])
		u.next++
	}
	return runs
}

func (u *unpacker) placePlain(c *chunk, r qcow2.Run, submit func(func() error) error) error {
	from, to := max(r.Host, c.off), min(r.Host+r.HostLen(u.m.Header), c.end())
	guest, data := r.Guest+from-r.Host, c.data[from-c.off:to-c.off]
	return submit(func() error { return u.write(guest, data) })
}

// write puts content to its place on the disk; the first MiB is kept for later.
func (u *unpacker) write(guest int64, data []byte) error {
	data = data[:min(int64(len(data)), max(0, u.m.Header.Size-guest))] // the last cluster may reach over the end
	if guest < headSize {
		n := copy(u.w.head[guest:], data)
		guest, data = guest+int64(n), data[n:]
	}
	if len(data) == 0 {
		return nil
	}
	return u.w.target.writeAt(data, guest)
}

// follows reports whether r unpacks to the cluster behind the last of batch, and the batch has space for it.
func (u *unpacker) follows(batch []packed, r qcow2.Run) bool {
	size := u.m.Header.ClusterSize
	return len(batch) > 0 && batch[len(batch)-1].guest+size == r.Guest && int64(len(batch)+1)*size <= batchSize
}

func (u *unpacker) placePacked(batch []packed, submit func(func() error) error) error {
	if len(batch) == 0 {
		return nil
	}
	return submit(func() error { return u.unpackBatch(batch) })
}

// unpackBatch unpacks clusters that follow each other on the disk and writes them at once.
func (u *unpacker) unpackBatch(batch []packed) error {
	t := <-u.tools
	defer func() { u.tools <- t }()
	size := u.m.Header.ClusterSize
	if t.buffer == nil {
		t.buffer = alignedBuffer(int(max(batchSize, size)))
	}
	cluster := func(i int) []byte { return t.buffer[int64(i)*size:][:size] }
	for i := 0; i < len(batch); i += 2 {
		if i+1 == len(batch) {
			u.spoilt(batch[i], t.Cluster(cluster(i), batch[i].data))
			break
		}
		errs := t.Two([2][]byte{cluster(i), cluster(i + 1)}, [2][]byte{batch[i].data, batch[i+1].data})
		u.spoilt(batch[i], errs[0])
		u.spoilt(batch[i+1], errs[1])
	}
	return u.write(batch[0].guest, t.buffer[:int64(len(batch))*size])
}

// spoilt remembers a cluster that makes no sense, if there is an error. Whether the image is at fault or the transfer is
// for the checksum to say, so the transfer goes on.
func (u *unpacker) spoilt(p packed, err error) {
	if err == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.corrupt == nil {
		u.corrupt = fmt.Errorf("the compressed cluster at byte %d of the disk: %w", p.guest, err)
	}
}

// bytes returns a compressed run that ends in c.
func (u *unpacker) bytes(c *chunk, r qcow2.Run) []byte {
	end := r.Host + r.HostLen(u.m.Header) - c.off
	if r.Host >= c.off {
		return c.data[r.Host-c.off : end]
	}
	if u.joined.Host != r.Host || u.joined.HostLen(u.m.Header) != r.HostLen(u.m.Header) {
		before := u.carry[int64(len(u.carry))-(c.off-r.Host):]
		u.joined, u.joinedBytes = r, bytes.Join([][]byte{before, c.data[:end]}, nil)
	}
	return u.joinedBytes
}

// keep copies what open compressed runs need of c, because c's memory is used again.
func (u *unpacker) keep(c *chunk, open []qcow2.Run) {
	u.open = open
	first := int64(-1)
	for _, r := range open {
		if r.Compressed && (first < 0 || r.Host < first) {
			first = r.Host
		}
	}
	switch {
	case first < 0:
		u.carry = u.carry[:0]
	case first >= c.off:
		u.carry = append(u.carry[:0], c.data[first-c.off:]...)
	default:
		u.carry = append(u.carry[int64(len(u.carry))-(c.off-first):], c.data...)
	}
}
