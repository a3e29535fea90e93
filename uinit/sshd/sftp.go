//go:build linux

package sshd

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/pkg/sftp"
)

// serveFiles is the work of the process of an SFTP session, which has the rights of the user. It returns when the
// client has ended the session.
func serveFiles() error {
	if os.Geteuid() != os.Getuid() {
		return errors.New("the process has more rights than its user")
	}
	server, err := sftp.NewServer(standardStreams{os.Stdin, os.Stdout}, sftp.WithAllocator())
	if err != nil {
		return fmt.Errorf("serve files: %w", err)
	}
	err = server.Serve()
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, server.Close())
}

// standardStreams are the streams of a process as one.
type standardStreams struct {
	io.Reader
	io.WriteCloser
}
