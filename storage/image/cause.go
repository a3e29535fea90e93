package image

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"
)

var (
	errNoHTTP   = errors.New("the connection failed, or the answer is not valid HTTP")
	errNoHost   = errors.New("the host of the redirect cannot be resolved")
	errNoPeer   = errors.New("the host of the redirect cannot be reached")
	errNoTrust  = errors.New("the certificate of the redirect's host is not accepted")
	errNoTarget = errors.New("the target is not a URL of http or https")
)

// publicCause returns the part of an error of net/http that may be shown. The texts of net/http quote URLs, malformed
// answers and header fields; after a redirect, host names and addresses come from the server as well.
func publicCause(err error, redirected bool) error {
	var wrapped *url.Error // quotes the whole URL with its query
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	var redirect *redirectError
	if errors.As(err, &redirect) {
		return redirect
	}
	if redirected {
		return redirectCause(err)
	}
	var (
		operation   *net.OpError
		dns         *net.DNSError
		certificate *tls.CertificateVerificationError
		record      tls.RecordHeaderError
		alert       tls.AlertError
		timeout     net.Error
	)
	switch {
	case errors.As(err, &operation):
		return operation
	case errors.As(err, &dns):
		return dns
	case errors.As(err, &certificate):
		return certificate
	case errors.As(err, &record):
		return errors.New(record.Msg)
	case errors.As(err, &alert):
		return alert
	case errors.As(err, &timeout) && timeout.Timeout():
		return errors.New("timeout of the connection or of the answer's header")
	}
	return knownCause(err)
}

// knownCause returns the error with a constant text that err wraps, and errNoHTTP if there is none.
func knownCause(err error) error {
	var number syscall.Errno
	if errors.As(err, &number) {
		return number
	}
	for _, known := range []error{
		io.EOF, io.ErrUnexpectedEOF, context.Canceled, context.DeadlineExceeded, net.ErrClosed, http.ErrSchemeMismatch,
	} {
		if errors.Is(err, known) {
			return known
		}
	}
	return errNoHTTP
}

// redirectCause returns the public cause of an error that occurred after a redirect.
func redirectCause(err error) error {
	var (
		dns         *net.DNSError
		certificate *tls.CertificateVerificationError
		authority   x509.UnknownAuthorityError
		number      syscall.Errno
		operation   *net.OpError
	)
	switch {
	case errors.As(err, &dns):
		return errNoHost
	case errors.As(err, &certificate), errors.As(err, &authority):
		return errNoTrust
	case errors.As(err, &number):
		return number
	case errors.As(err, &operation):
		return errNoPeer
	}
	return knownCause(err)
}
