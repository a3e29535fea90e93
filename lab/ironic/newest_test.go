//go:build linux

package ironic

import (
	"context"
	"strings"
	"sync"
	"testing"

	"ironroot/internal/test/testenv"
)

// installNewest installs the Ironic of Debian sid, once for all tests of this process.
var installNewest = sync.OnceValue(func() error {
	_, err := chroot(context.Background(), "", Sid, nil)
	return err
})

// newest returns Sid, or Trixie if the Ironic of sid cannot be installed: that archive changes daily and is not part of
// this project. TestNewestIronic says so.
func newest(t *testing.T) string {
	t.Helper()
	testenv.Root(t)
	testenv.Programs(t, "mmdebstrap")
	if err := installNewest(); err != nil {
		t.Logf("Ironic of Debian sid cannot be installed: %v", err)
		return Trixie
	}
	return Sid
}

// TestNewestIronic is skipped if the tests that call newest use the Ironic of Debian stable.
func TestNewestIronic(t *testing.T) {
	if newest(t) != Sid {
		t.Skipf("Ironic of Debian sid cannot be installed, other tests used %s: %v", Trixie, installNewest())
	}
}

// The newest Ironic that docs/ironic.md describes: the start of the version of Debian's package, and the API version.
const newestVersion, newestAPI = "1:39.0.", "1.115"

// checkNewest checks that the newest Ironic of Debian is not older than the one that the documents describe. A newer
// one is no failure, because Debian's sid changes any day: the other checks of a test show whether it works.
func checkNewest(t *testing.T, ctx context.Context, i *Ironic) {
	t.Helper()
	debian, api, err := i.Version(ctx)
	step(t, "version", err)
	t.Logf("Ironic %s, API %s", debian, api)
	if minor(t, api) < minor(t, newestAPI) {
		t.Errorf("newest Ironic: got API %s, want at least %s; remove its directory from the cache", api, newestAPI)
	}
	if !strings.HasPrefix(debian, newestVersion) || api != newestAPI {
		t.Logf("docs/ironic.md describes Ironic %s with API %s", newestVersion, newestAPI)
	}
}
