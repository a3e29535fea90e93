package main

import (
	"os"

	"ironroot/release"
	"ironroot/release/signature"
)

// verifyCmd verifies signed files.
type verifyCmd struct {
	Key   string   `short:"p" name:"public-key" required:"" placeholder:"KEY" help:"Public key of minisign, as text or as a file."`
	Paths []string `arg:"" name:"path" help:"Files, OCI layouts, and directories with nothing else."`
}

// Run verifies the files.
func (c *verifyCmd) Run() error {
	key, err := signature.LoadPublicKey(c.Key)
	if err != nil {
		return err
	}
	return release.Verify(key, c.Paths, os.Stdout)
}
