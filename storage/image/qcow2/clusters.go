package qcow2

import (
	"fmt"
	"sync"

	"ironroot/storage/image/device"
)

// batchSize is the number of bytes that are written at once where clusters follow each other on the disk.
const batchSize = 1 << 20

// cluster is a compressed cluster in memory.
type cluster struct {
	guest int64
	data  []byte
}

// clusters decompresses the clusters of a placer and writes them. It is safe for concurrent use.
type clusters struct {
	size   int64
	tools  chan *tool // one for each concurrent job
	placer *Placer

	mu      sync.Mutex
	damaged error // the first cluster that could not be decompressed
}

// tool holds the decompressor and the buffer of one job.
type tool struct {
	*decompressor
	buffer []byte
}

func newClusters(h *Header, jobs int, p *Placer) (*clusters, error) {
	c := &clusters{size: h.ClusterSize, tools: make(chan *tool, jobs), placer: p}
	for range jobs {
		d, err := newDecompressor(h)
		if err != nil {
			c.close()
			return nil, fmt.Errorf("unpack qcow2 clusters: %w", err)
		}
		c.tools <- &tool{decompressor: d}
	}
	return c, nil
}

func (c *clusters) close() {
	close(c.tools)
	for t := range c.tools {
		t.close()
	}
}

// borrow returns a tool with its buffer, and a function that gives it back.
func (c *clusters) borrow() (*tool, func()) {
	t := <-c.tools
	if t.buffer == nil {
		t.buffer = device.NewBuffer(int(max(batchSize, c.size)))
	}
	return t, func() { c.tools <- t }
}

// follows reports whether a cluster at guest lies behind the last of batch, and the batch has space for it.
func (c *clusters) follows(batch []cluster, guest int64) bool {
	return len(batch) > 0 && batch[len(batch)-1].guest+c.size == guest && int64(len(batch)+1)*c.size <= batchSize
}

// put decompresses clusters that follow each other on the disk, and writes them at once.
func (c *clusters) put(batch []cluster) error {
	t, giveBack := c.borrow()
	defer giveBack()
	out := func(i int) []byte { return t.buffer[int64(i)*c.size:][:c.size] }
	for i := 0; i < len(batch); i += 2 {
		if i+1 == len(batch) {
			c.note(batch[i], t.cluster(out(i), batch[i].data))
			break
		}
		errs := t.two([2][]byte{out(i), out(i + 1)}, [2][]byte{batch[i].data, batch[i+1].data})
		c.note(batch[i], errs[0])
		c.note(batch[i+1], errs[1])
	}
	return c.placer.write(batch[0].guest, t.buffer[:int64(len(batch))*c.size])
}

// note records the first error. Only the checksum shows whether the image is damaged or the transfer was, so the
// transfer continues.
func (c *clusters) note(one cluster, err error) {
	if err == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.damaged == nil {
		c.damaged = broken("the compressed cluster at byte %d of the disk: %v", one.guest, err)
	}
}

// err returns the error of the first cluster that could not be decompressed.
func (c *clusters) err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.damaged
}
