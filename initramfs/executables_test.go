package initramfs

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/empty"

	"ironroot/internal/test/testenv"
)

// elfFile returns an ELF file without sections, with the dynamic loader that it needs, "" for none.
func elfFile(t *testing.T, kind elf.Type, machine elf.Machine, loader string) string {
	t.Helper()
	header := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), 1},
		Type:  uint16(kind), Machine: uint16(machine), Version: 1, Phoff: 64, Ehsize: 64, Phentsize: 56,
	}
	program := elf.Prog64{Type: uint32(elf.PT_INTERP), Off: 120, Filesz: uint64(len(loader)) + 1}
	if loader != "" {
		header.Phnum = 1
	}
	var out bytes.Buffer
	for _, part := range []any{header, program, []byte(loader + "\x00")} {
		if err := binary.Write(&out, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

// Everything in the directory of managers must be a program that the ramdisk, or the manager root, can run. Otherwise
// the image is not built.
func TestManagersAreExecutable(t *testing.T) {
	static := elfFile(t, elf.ET_EXEC, elf.EM_X86_64, "")
	const manager = managersDir + "/m"
	for _, tt := range []struct {
		name, text string
		mode       os.FileMode
		arch       string // amd64 if empty
		path       string // manager if empty
		target     string // of a symbolic link
		extra      string // further file
		want       string // "" if it is accepted
	}{
		{name: "static", text: static, mode: 0o755},
		{name: "position-independent", text: elfFile(t, elf.ET_DYN, elf.EM_X86_64, ""), mode: 0o700},
		{name: "32 bits", text: elfFile(t, elf.ET_EXEC, elf.EM_386, ""), mode: 0o755},
		{name: "arm64", text: elfFile(t, elf.ET_EXEC, elf.EM_AARCH64, ""), mode: 0o755, arch: "arm64"},
		{name: "script", text: "#!/bin/sh\n", mode: 0o755, extra: "bin/sh"},
		{name: "script with option", text: "#! /usr/bin/python3 -BI\n", mode: 0o755, extra: "usr/bin/python3"},
		{
			name: "dynamic, with loader", text: elfFile(t, elf.ET_DYN, elf.EM_X86_64, "/lib64/ld.so"), mode: 0o755,
			extra: "lib64/ld.so",
		},
		{name: "elsewhere", text: "text", mode: 0o644, path: "usr/lib/ironroot/note"},

		{name: "not executable", text: static, mode: 0o644, want: "mode -rw-r--r--: not executable"},
		{name: "writable", text: static, mode: 0o775, want: "mode -rwxrwxr-x: others than the owner can write to it"},
		{name: "text", text: "A note.\n", mode: 0o755, want: "neither an ELF program nor a script (no #! at"},
		{name: "empty", mode: 0o755, want: "neither an ELF program nor"},
		{name: "no interpreter", text: "#! \nx", mode: 0o755, want: "script without the path of an interpreter"},
		{name: "interpreter missing", text: "#!/bin/sh\n", mode: 0o755, want: `needs "/bin/sh", which is not there`},
		{
			name: "line of Windows", text: "#!/bin/sh\r\n", mode: 0o755, extra: "bin/sh",
			want: `needs "/bin/sh\r", which is not there`,
		},
		{
			name: "dynamic", text: elfFile(t, elf.ET_DYN, elf.EM_X86_64, "/lib64/ld.so"), mode: 0o755,
			want: `needs "/lib64/ld.so", which is not there: link a program for the ramdisk statically`,
		},
		{
			name: "other machine", text: elfFile(t, elf.ET_EXEC, elf.EM_AARCH64, ""), mode: 0o755,
			want: "ELF file for EM_AARCH64, want one for amd64",
		},
		{
			name: "object file", text: elfFile(t, elf.ET_REL, elf.EM_X86_64, ""), mode: 0o755,
			want: "ELF file of type ET_REL, want a program",
		},
		{name: "cut", text: static[:18], mode: 0o755, want: "ELF file of 18 bytes"},
		{name: "symbolic link", target: "/bin/sh", want: "got type L---------, want a regular file"},
		{
			name: "in a subdirectory", text: static, mode: 0o755, path: manager + "/m",
			want: "subdirectory, want files only",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.arch == "" {
				tt.arch = "amd64"
			}
			if tt.path == "" {
				tt.path = manager
			}
			dir := t.TempDir()
			file := filepath.Join(dir, tt.path)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if tt.target != "" {
				testenv.Run(t, "ln", "-s", tt.target, file)
			} else if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			} else if err := os.Chmod(file, tt.mode); err != nil {
				t.Fatal(err)
			}
			headers := []tar.Header{{
				Name: tt.path, Mode: int64(tt.mode), Size: int64(len(tt.text)), Linkname: tt.target,
			}}
			if tt.target != "" {
				headers[0].Typeflag = tar.TypeSymlink
			}
			if tt.extra != "" {
				headers = append(headers, tar.Header{Name: tt.extra, Mode: 0o755})
				extra := filepath.Join(dir, tt.extra)
				if err := os.MkdirAll(filepath.Dir(extra), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(extra, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			ramdisk := func() error {
				records, err := extraFiles(filepath.Join(dir, "usr") + ":/usr")
				if err != nil {
					return err
				}
				if tt.extra != "" {
					extra, err := extraFiles(filepath.Join(dir, tt.extra) + ":" + tt.extra)
					if err != nil {
						return err
					}
					records = append(records, extra...)
				}
				names, err := checkManagers(recordFiles(records), tt.arch)
				if isManager := slices.Equal(names, []string{path.Base(manager)}); err == nil &&
					isManager != (tt.path == manager) {
					err = fmt.Errorf("got the managers %q of %s", names, tt.path)
				}
				return err
			}
			b := &builder{Options: Options{Arch: tt.arch, Progress: io.Discard}}
			pack := func(source string) error {
				_, err := b.packRoot(t.Context(), source)
				return err
			}
			for place, err := range map[string]error{
				"ramdisk": ramdisk(), "directory": pack(dir), "container": pack(saved(t, tt.text, headers)),
			} {
				if tt.want == "" && err != nil || tt.want != "" && (err == nil ||
					!strings.HasPrefix(err.Error(), "/"+manager) || !strings.Contains(err.Error(), ": "+tt.want) ||
					!strings.Contains(err.Error(), "uses no disk if one cannot be run")) {
					t.Errorf("%s: got %v, want %q", place, err, tt.want)
				}
			}
		})
	}
}

// saved returns a container image as docker save writes it. The first file has the text, the others are empty.
func saved(t *testing.T, text string, headers []tar.Header) string {
	t.Helper()
	var data bytes.Buffer
	w := tar.NewWriter(&data)
	for _, h := range headers {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text[:h.Size]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return save(t, withLayer(t, empty.Image, data.Bytes()))
}
