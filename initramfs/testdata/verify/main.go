// Command verify verifies a chain of certificates, which it reads from standard input, with the certificate authorities
// of the system. Its arguments are a host name and a time.
package main

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"time"
)

func main() {
	if err := verify(os.Args[1], os.Args[2]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func verify(host, date string) error {
	now, err := time.Parse(time.RFC3339, date)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	block, rest := pem.Decode(text)
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return err
	}
	intermediates := x509.NewCertPool()
	intermediates.AppendCertsFromPEM(rest)
	_, err = leaf.Verify(x509.VerifyOptions{DNSName: host, CurrentTime: now, Intermediates: intermediates})
	return err
}
