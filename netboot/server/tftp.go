package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"time"

	"github.com/pin/tftp/v3"

	"ironroot/internal/goroutine"
)

// TFTP is a running TFTP server (RFC 1350 with the options of RFC 2348 and 2349).
type TFTP struct {
	files  *files
	server *tftp.Server
	addr   netip.AddrPort
	stop   func() bool
	ended  chan struct{}
}

// These limits end the transfers of clients that were switched off.
const (
	tftpTimeout = time.Second
	tftpRetries = 6
)

// ListenTFTP starts a read-only TFTP server that runs until ctx ends or Close is called.
func ListenTFTP(ctx context.Context, config FilesConfig) (*TFTP, error) {
	files, err := openFiles(config)
	if err != nil {
		return nil, fmt.Errorf("tftp server: %w", err)
	}
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(config.Listen))
	if err != nil {
		return nil, fmt.Errorf("tftp server: %w", errors.Join(err, files.root.Close()))
	}
	t := &TFTP{files: files, addr: conn.LocalAddr().(*net.UDPAddr).AddrPort(), ended: make(chan struct{})}
	t.server = tftp.NewServer(t.read, nil)
	t.server.SetTimeout(tftpTimeout)
	t.server.SetRetries(tftpRetries)
	t.stop = goroutine.AfterContext(ctx, t.server.Shutdown)
	goroutine.Go(func() error { return t.server.Serve(conn) }, func(err error) {
		if err != nil {
			files.log.Error("tftp server ended", "err", err)
		}
		close(t.ended)
	})
	return t, nil
}

// Addr returns the address on which the server listens.
func (t *TFTP) Addr() netip.AddrPort { return t.addr }

// Close stops the server and waits for active transfers.
func (t *TFTP) Close() error {
	if t.stop() {
		t.server.Shutdown()
	}
	<-t.ended
	return t.files.root.Close()
}

// read serves a file. The library calls it in a goroutine of its own.
func (t *TFTP) read(name string, to io.ReaderFrom) error {
	request := Request{Protocol: "tftp", Path: name, Status: 200}
	started := time.Now()
	transfer, ok := to.(tftp.OutgoingTransfer)
	if ok {
		address := transfer.RemoteAddr()
		request.Client = address.String()
	}
	defer func() {
		request.Duration = time.Since(started)
		t.files.done(request)
	}()
	file, info, err := t.files.open(name)
	if err != nil {
		request.Status, request.Err = 404, err
		if !errors.Is(err, fs.ErrNotExist) {
			request.Status = 500
		}
		return fs.ErrNotExist // the client gets no details
	}
	defer file.Close() //nolint:errcheck // only read
	if ok {
		transfer.SetSize(info.Size())
	}
	request.Bytes, request.Err = to.ReadFrom(file)
	if request.Err == nil {
		return nil
	}
	err = request.Err
	if request.Bytes == 0 && info.Size() > 0 {
		request.Err = nil // firmware first requests the size and then aborts the transfer
	} else {
		request.Status = 500
	}
	return err
}
