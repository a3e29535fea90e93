package server

import (
	"errors"
	"io"
	"net/netip"
	"slices"
	"sync"
)

// Limits of TFTP transfers.
const (
	maxConfirmed           = 64
	maxUnconfirmed         = 128
	maxTransfersPerAddress = 8
	// maxRunning includes those that were displaced. They end when their client acknowledges a block, or after all
	// retries, which is after 7 to 13 s.
	maxRunning = 1024
)

var (
	errTooManyTransfers = errors.New("too many transfers, try again later")
	errDisplaced        = errors.New("displaced by another transfer")
)

// transfers limits the transfers of a TFTP server, in total and of each address. The source of a request can be forged,
// but then no block is acknowledged. Transfers are therefore unconfirmed until the client has acknowledged the first
// block. A request displaces unconfirmed transfers that are in its way: older ones of the same address, or of the
// address with the most. A flood of requests with forged sources displaces transfers of the flood, while confirmed
// transfers continue. But if the flood fills maxRunning, new requests are refused until transfers of it end.
type transfers struct {
	mu          sync.Mutex
	running     int
	unconfirmed pool
	confirmed   pool
}

func newTransfers() *transfers {
	return &transfers{unconfirmed: pool{limit: maxUnconfirmed}, confirmed: pool{limit: maxConfirmed}}
}

// begin adds an unconfirmed transfer. The caller must call end unless it returns an error.
func (t *transfers) begin(address netip.Addr) (*slot, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running >= maxRunning {
		return nil, errTooManyTransfers
	}
	if t.unconfirmed.count(address)+t.confirmed.count(address) >= maxTransfersPerAddress {
		i := slices.IndexFunc(t.unconfirmed.list, func(s *slot) bool { return s.address == address })
		if i < 0 {
			return nil, errTooManyTransfers
		}
		t.unconfirmed.remove(t.unconfirmed.list[i])
	}
	if t.unconfirmed.full() {
		oldest, _ := t.unconfirmed.largest()
		t.unconfirmed.remove(oldest)
	}
	transfer := &slot{address: address}
	t.unconfirmed.add(transfer)
	t.running++
	return transfer, nil
}

// proceed returns an error if the transfer must end, because it was displaced, or because it is confirmed and there are
// too many of those.
func (t *transfers) proceed(transfer *slot, confirmed bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case transfer.pool == nil:
		return errDisplaced
	case !confirmed || transfer.pool == &t.confirmed:
		return nil
	}
	if _, ok := t.confirmed.makeSpace(transfer.address); !ok {
		return errTooManyTransfers
	}
	t.unconfirmed.remove(transfer)
	t.confirmed.add(transfer)
	return nil
}

// end removes a transfer.
func (t *transfers) end(transfer *slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running--
	if transfer.pool != nil {
		transfer.pool.remove(transfer)
	}
}

// blocks reads the content of a transfer. It returns an error when the transfer must end.
type blocks struct {
	io.Reader
	transfers *transfers
	transfer  *slot
	offset    int64
}

// Read implements [io.Reader]. The server reads a block after the one before was acknowledged, and no block is longer
// than tftpBlock. So whoever needs the byte at this offset has acknowledged a block.
func (b *blocks) Read(p []byte) (int, error) {
	if err := b.transfers.proceed(b.transfer, b.offset >= tftpBlock); err != nil {
		return 0, err
	}
	n, err := b.Reader.Read(p)
	b.offset += int64(n)
	return n, err
}
