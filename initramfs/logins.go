package initramfs

import (
	"context"
	"fmt"
	"os"
	"path"

	"github.com/u-root/mkuimage/cpio"

	"ironroot/uinit/account"
	"ironroot/uinit/boot/layout"
)

// authorizedKeys returns the records of the file with public keys. A file without keys, or with one that the ramdisk
// would not accept, is an error.
func (b *builder) authorizedKeys() ([]cpio.Record, error) {
	name := b.AuthorizedKeys
	if name == "" {
		return nil, nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if _, err := account.ParseKeys(text); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	b.note(layout.KeysFile, origin{own: true})
	return []cpio.Record{
		cpio.Directory(path.Dir(layout.KeysFile), 0o700), cpio.StaticFile(layout.KeysFile, string(text), 0o600),
	}, nil
}

// rescueRoot returns the records of the userland of a rescue.
func (b *builder) rescueRoot(ctx context.Context) ([]cpio.Record, error) {
	if b.RescueRoot == "" {
		return nil, nil
	}
	b.say("packing rescue root %s", b.RescueRoot)
	entries, err := b.rootEntries(ctx, b.RescueRoot)
	if err != nil {
		return nil, fmt.Errorf("rescue root %s: %w", b.RescueRoot, err)
	}
	image, err := squashedRoot(ctx, entries)
	if err != nil {
		return nil, fmt.Errorf("rescue root %s: %w", b.RescueRoot, err)
	}
	b.note(layout.RescueFile, origin{own: true})
	b.countPacked("rescue root", 1, int64(len(image)), int64(len(image)))
	return []cpio.Record{cpio.StaticFile(layout.RescueFile, string(image), 0o644)}, nil
}
