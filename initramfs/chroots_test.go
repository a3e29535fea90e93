//go:build long

package initramfs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
)

// Builds of the default image in chroots of Debian 12 and Debian 13 are identical. Users, directories, umasks, time
// zones, locales and caches differ. The lock file pins the versions; the chroots have neither Debian's keyring nor a
// network.
func TestChroots(t *testing.T) {
	testenv.Root(t)
	testenv.Programs(t, "mmdebstrap", "unshare", "go")
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	build(t, func(o *Options) { o.Shell = true }) // downloads the packages
	program := filepath.Join(t.TempDir(), "ironroot")
	testenv.Run(t, "go", "build", "-C", testenv.Top(t), "-trimpath", "-o", program, "./cmd/ironroot")
	goEnv := func(name string) string { return strings.TrimSpace(testenv.Run(t, "go", "env", name)) }
	var sums []string
	for _, c := range []struct{ suite, user, home, umask, zone, locale string }{
		{"bookworm", "1234", "/home/builder", "077", "Pacific/Kiritimati", "C.UTF-8"},
		{"trixie", "0", "/root", "002", "America/St_Johns", "POSIX"},
	} {
		root := filepath.Join(t.TempDir(), c.suite)
		testenv.Run(t, "mmdebstrap", "--quiet", "--variant=essential", "--include=tzdata", c.suite, root)
		for _, dir := range []string{"src", "go", "modules", "packages", "build"} {
			if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		testenv.Run(t, "cp", program, filepath.Join(root, "usr/local/bin/ironroot"))
		script := strings.NewReplacer("@ROOT@", root, "@SRC@", testenv.Top(t), "@GO@", goEnv("GOROOT"), "@MODULES@",
			goEnv("GOMODCACHE"), "@PACKAGES@", filepath.Join(cache, "ironroot", "packages"), "@USER@", c.user,
			"@HOME@", c.home, "@UMASK@", c.umask, "@ZONE@", c.zone, "@LOCALE@", c.locale).Replace(chrootScript)
		out := testenv.Run(t, "unshare", "--mount", "--net", "--pid", "--fork", "sh", "-e", "-c", script)
		t.Logf("%s\n%s", c.suite, out)
		sums = append(sums, testenv.Run(t, "sh", "-c",
			`cd "$0" && sha256sum ipa-ironroot-amd64.kernel ipa-ironroot-amd64.initramfs ipa-ironroot-amd64.tar.gz`,
			filepath.Join(root, "build/out")))
	}
	if sums[0] != sums[1] {
		t.Errorf("the images differ:\n%s\n%s", sums[0], sums[1])
	}
}

// chrootScript builds the image in a chroot. Source, Go and modules are read-only; caches are empty.
const chrootScript = `
for pair in @SRC@:src @GO@:go @MODULES@:modules @PACKAGES@:packages; do
	mount --bind "${pair%:*}" "@ROOT@/${pair#*:}"
	mount -o remount,bind,ro "@ROOT@/${pair#*:}"
done
mount -t proc proc @ROOT@/proc
mkdir -p @ROOT@@HOME@/cache @ROOT@/build/tmp
ln -s /packages @ROOT@@HOME@/cache/packages
mount --bind /dev/null @ROOT@/dev/null
chown -R @USER@ @ROOT@@HOME@ @ROOT@/build
chroot @ROOT@ setpriv --reuid @USER@ --regid @USER@ --clear-groups sh -e -c '
	umask @UMASK@
	export HOME=@HOME@ TZ=@ZONE@ LC_ALL=@LOCALE@ TMPDIR=/build/tmp PATH=/go/bin:$PATH GOPATH=@HOME@/gopath
	export GOMODCACHE=/modules GOCACHE=@HOME@/gocache GOFLAGS=-mod=mod GOPROXY=off GOSUMDB=off
	cd /src
	ironroot image --locked --offline --cache @HOME@/cache -o /build/out 2>&1
'
`
