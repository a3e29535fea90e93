package initramfs

import (
	"io"

	"ironroot/initramfs/debian"
	"ironroot/initramfs/firmware"
	"ironroot/release/bill"
)

// Options configure a build. The zero value builds the amd64 image with Debian's kernel, its modules of the group
// server, and no shell, into the directory build.
type Options struct {
	Arch         string   // GOARCH of the image: "amd64" ("" = amd64) or "arm64"
	Out          string   // directory of the results; "" = "build"
	Name         string   // stem of the files' names; "" = "ipa-ironroot-" + Arch
	Kernel       string   // path of a kernel; "" = the one of Package
	Modules      string   // directory with the modules of Kernel, searched recursively; "" = the package's
	Package      string   // Debian package of the kernel; "" = "linux-image-" + Arch. Meta packages are resolved
	KernelConfig string   // path of the configuration of Kernel; "" = unknown, firmware is not compressed
	ModuleGroups []string // groups of initramfs/modules; nil = {"server"}, {"none"} = no modules
	Shell        bool     // add u-root's shell and commands, for debugging
	Init         string   // Go package of /init; "" = "ironroot/uinit"
	Managers     []string // directories of Go packages with hardware managers that /init contains
	ManagerRoots []string // userlands with managers: directories, OCI layouts, tarballs, or oci://REFERENCE
	// AuthorizedKeys is a file with public keys of operators who may log in as root; "" = none.
	AuthorizedKeys string
	// CAFiles contain the certificate authorities that the ramdisk trusts, PEM; nil = the authorities of
	// AuthoritiesPackage.
	CAFiles []string
	// ManagerCalls are system calls that managers may make besides every manager's, by the names of their executables.
	ManagerCalls map[string][]string
	// RescueRoot is the userland of a rescue, like one of ManagerRoots; "" = none.
	RescueRoot string
	Firmware   string         // directory with firmware that is preferred to Debian's packages; "" = none
	NoFirmware bool           // omit all firmware
	Files      []string       // extra files, HOST:GUEST
	CacheDir   string         // directory of cached files; "" = ironroot in the user's cache directory
	Debian     debian.Options // archive of the packages; its CacheDir and Progress are the build's
	Bill       *bill.Build    // describe each file next to it: contents and provenance; nil = do not
	Dir        string         // directory of the Go module to build from; "" = the current directory
	Progress   io.Writer
}

// Report describes the result of a build.
type Report struct {
	Kernel, Initramfs, Tarball string // paths
	KernelSize, InitramfsSize  int64  // bytes
	Parts                      []Part // of the initramfs
	Modules                    int    // number of modules in the initramfs
	MissingFirmware            []Missing
	KernelRelease              string
}

// Part is a part of the initramfs.
type Part struct {
	Name       string
	Files      int
	Raw, Store int64 // bytes before and after compression
}

// Packages returns the Debian packages that images are built from by default, each NAME:ARCH.
func Packages() []string {
	packages := []string{
		AuthoritiesPackage + ":amd64", "linux-image-amd64:amd64", "linux-image-cloud-amd64:amd64",
		"linux-image-arm64:arm64", "linux-image-cloud-arm64:arm64",
	}
	for _, name := range firmware.Packages {
		packages = append(packages, name+":amd64")
	}
	return packages
}
