package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/pin/tftp/v3"

	"ironroot/internal/goroutine"
)

// TFTP is a running TFTP server (RFC 1350 with the options of RFC 2348 and 2349). It ignores other options, as RFC 2347
// allows: clients that request a window (RFC 7440) get one block at a time.
type TFTP struct {
	files     *files
	server    *tftp.Server
	conn      *net.UDPConn
	link      string // the interface of conn; "" for all
	ended     chan struct{}
	transfers *transfers
}

// The timeout and the number of retries end the transfers of clients that were switched off.
const (
	tftpTimeout = time.Second
	tftpRetries = 6
	// tftpBlock is the size of the longest block that fits into a frame of Ethernet, in bytes.
	tftpBlock = 1500 - 20 - 8 - 4
)

// ListenTFTP starts a read-only TFTP server that runs until ctx ends or Close is called. FilesConfig.Interface
// restricts requests only: each transfer has a socket of its own, on the address at which the request arrived, which is
// not bound to the interface.
func ListenTFTP(ctx context.Context, config FilesConfig) (*TFTP, error) {
	files, err := openFiles(config)
	if err != nil {
		return nil, fmt.Errorf("tftp server: %w", err)
	}
	listen := net.ListenConfig{Control: onInterface(config.Interface)}
	packets, err := listen.ListenPacket(ctx, "udp", config.Listen.String())
	if err != nil {
		return nil, fmt.Errorf("tftp server: %w", errors.Join(err, files.close()))
	}
	conn := packets.(*net.UDPConn)
	t := &TFTP{
		files: files, conn: conn, link: config.Interface, ended: make(chan struct{}), transfers: newTransfers(),
	}
	t.server = tftp.NewServer(t.read, nil)
	t.server.SetTimeout(tftpTimeout)
	t.server.SetRetries(tftpRetries)
	t.server.SetBlockSize(tftpBlock)
	stop := goroutine.AfterContext(ctx, t.shutdown)
	goroutine.Go(func() error {
		defer conn.Close() //nolint:errcheck // still open only if Shutdown came before Serve
		return t.server.Serve(conn)
	}, func(err error) {
		if err != nil {
			files.log.Error("tftp server ended", "err", err)
		}
		stop()
		close(t.ended)
	})
	return t, nil
}

func (t *TFTP) shutdown() {
	releasePort(t.conn, t.link)
	t.server.Shutdown()
}

// Addr returns the address on which the server listens.
func (t *TFTP) Addr() netip.AddrPort { return t.conn.LocalAddr().(*net.UDPAddr).AddrPort() }

// Close stops the server and waits until the port is free and active transfers have ended.
func (t *TFTP) Close() error {
	// The library panics if a request that it has just read starts a transfer while Shutdown waits for the others.
	_ = goroutine.Catch(func() error {
		t.shutdown()
		return nil
	})
	<-t.ended
	t.server.Shutdown() // waits for the transfers, of which no more start
	return t.files.close()
}

// endOption is the option that ends a DHCP message. Firmware that ignores the length of option 67 sends it as a part of
// the name.
const endOption = "\xff"

// read serves a file. The library calls it in a goroutine of its own.
func (t *TFTP) read(name string, to io.ReaderFrom) error {
	for strings.HasSuffix(name, endOption) {
		name = strings.TrimSuffix(name, endOption)
	}
	request := Request{Protocol: "tftp", Path: name, Status: 200}
	started := time.Now()
	var address netip.Addr
	outgoing, ok := to.(tftp.OutgoingTransfer)
	if ok {
		client := outgoing.RemoteAddr()
		request.Client, address = client.String(), addressOf(&client)
	}
	defer func() {
		request.Duration = time.Since(started)
		t.files.done(request)
	}()
	transfer, err := t.transfers.begin(address)
	if err != nil {
		request.Status, request.Err = 503, err
		return err
	}
	defer t.transfers.end(transfer)
	file, err := t.files.open(name)
	if err != nil {
		request.Status, request.Err = 404, err
		if !errors.Is(err, fs.ErrNotExist) {
			request.Status = 500
		}
		return fs.ErrNotExist // the client gets no details
	}
	defer file.Close() //nolint:errcheck // only read
	if ok {
		outgoing.SetSize(file.Size)
	}
	request.Bytes, request.Err = to.ReadFrom(&blocks{Reader: file, transfers: t.transfers, transfer: transfer})
	err = request.Err
	switch {
	case err == nil:
	case errors.Is(err, errTooManyTransfers), errors.Is(err, errDisplaced):
		request.Status = 503
	case request.Bytes == 0 && file.Size > 0:
		request.Err = nil // firmware first requests the size and then aborts the transfer
	default:
		request.Status = 500
	}
	return err
}
