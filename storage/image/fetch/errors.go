package fetch

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"
)

// DownloadError means that a file could not be downloaded.
type DownloadError struct {
	URL    string // without credentials and query
	Status int    // HTTP status, 0 without a response
	Err    error  // nil if Status is the error
	Fatal  bool   // neither a retry nor another URL can help

	challenges []string // WWW-Authenticate of a 401
}

func (e *DownloadError) Error() string {
	switch {
	case e.Err == nil:
		return fmt.Sprintf("download %s: got HTTP status %d, want 200", e.URL, e.Status)
	case e.Status != 0 && e.Status != 200 && e.Status != 206:
		return fmt.Sprintf("download %s: HTTP status %d: %v", e.URL, e.Status, e.Err)
	}
	return fmt.Sprintf("download %s: %v", e.URL, e.Err)
}

func (e *DownloadError) Unwrap() error { return e.Err }

// TimeoutError means that all attempts together took longer than the maximum. A retry cannot help.
type TimeoutError struct {
	URL string // without credentials and query
	Max time.Duration
	Err error // of the last attempt; may be nil
}

func (e *TimeoutError) Error() string {
	text := fmt.Sprintf("download %s: took longer than the maximum of %v", e.URL, e.Max)
	if e.Err != nil {
		text += fmt.Sprintf(" (last error: %v)", e.Err)
	}
	return text
}

func (e *TimeoutError) Unwrap() error { return e.Err }

// Timeout reports true: callers treat the error as a timeout, like one of package net.
func (e *TimeoutError) Timeout() bool { return true }

// InterruptedError marks a download that failed after the server had begun to respond. Another transfer can succeed.
type InterruptedError struct{ err error }

func (e *InterruptedError) Error() string { return e.err.Error() }
func (e *InterruptedError) Unwrap() error { return e.err }

// Interrupted wraps err in an InterruptedError if it is a DownloadError that is not fatal, and returns any other as
// it is.
func Interrupted(err error) error {
	var down *DownloadError
	if errors.As(err, &down) && !down.Fatal {
		return &InterruptedError{err}
	}
	return err
}

// proxyError means that a proxy refused to connect to a server.
type proxyError struct {
	proxy  string // URL without credentials
	status int
}

func (e *proxyError) Error() string {
	return fmt.Sprintf("proxy %s answered CONNECT with HTTP status %d, want 200", e.proxy, e.status)
}

// isTemporary reports whether the proxy may answer in another way later.
func (e *proxyError) isTemporary() bool {
	return e.status >= http.StatusInternalServerError || e.status == http.StatusRequestTimeout ||
		e.status == http.StatusTooManyRequests
}

// CheckConnect is a function for http.Transport.OnProxyConnectResponse. Its errors name the proxy and the status.
func CheckConnect(_ context.Context, proxy *url.URL, _ *http.Request, answer *http.Response) error {
	if answer.StatusCode == http.StatusOK {
		return nil
	}
	return &proxyError{RedactURL(proxy.String()), answer.StatusCode}
}

var (
	errNoHTTP   = errors.New("the connection failed, or the answer is not valid HTTP")
	errNoHost   = errors.New("the host of the redirect cannot be resolved")
	errNoPeer   = errors.New("the host of the redirect cannot be reached")
	errNoTrust  = errors.New("the certificate of the redirect's host is not accepted")
	errNoTarget = errors.New("the target is not a URL of http or https")
)

// publicCause returns the part of an error of net/http that may be shown. The texts of net/http quote URLs, malformed
// responses and header fields; after a redirect, host names and addresses come from the server as well.
func publicCause(err error, redirected bool) error {
	var wrapped *url.Error // quotes the whole URL with its query
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	var redirect *redirectError
	if errors.As(err, &redirect) {
		return redirect
	}
	var proxy *proxyError
	if errors.As(err, &proxy) {
		return proxy
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
