package unpack

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/ulikunitz/xz"

	"ironroot/internal/test/imagetest"
	"ironroot/internal/test/testenv"
)

const mib = 1 << 20

// programs are programs that write files of each format.
var programs = map[string]string{
	"gzip": "gzip -c", "zstd": "zstd -q -c", "xz": "xz -0 -c", "bzip2": "bzip2 -c", "lz4": "lz4 -q -c",
}

// Each format is detected alone, and its reader returns what the program compressed.
func TestReader(t *testing.T) {
	for _, f := range Formats {
		if programs[f.Name] == "" {
			t.Errorf("programs in unpack_test.go has no program for the format %s of Formats", f.Name)
		}
	}
	data := imagetest.DiskContent(48, mib+4321, 100<<10)
	for name, command := range programs {
		file := imagetest.Pack(t, data, command)
		var found []string
		for _, f := range Formats {
			if !f.Detect(file) {
				continue
			}
			found = append(found, f.Name)
			r, err := f.NewReader(bytes.NewReader(file), 0)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%s: got %d bytes and error %v, want %d", name, len(got), err, len(data))
			}
			r.Close()
			if _, err := io.ReadAll(&Reader{
				format: f.Name, content: io.NopCloser(iotest.ErrReader(io.ErrUnexpectedEOF)),
			}); !imagetest.IsA[*Error](err) || errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s: got error %v, want one that hides its cause", name, err)
			}
		}
		if !slices.Equal(found, []string{name}) {
			t.Errorf("%s: got %q detected by Formats in unpack.go, want only %s", name, found, name)
		}
	}
}

// Zeros that follow a file are ignored, as by the programs. Anything else is an error: they warn about it.
func TestPadding(t *testing.T) {
	data := imagetest.DiskContent(49, mib, 100<<10)
	for _, name := range []string{"gzip", "bzip2", "xz"} {
		file := imagetest.Pack(t, data, name+" -c")
		i := slices.IndexFunc(Formats, func(f Format) bool { return f.Name == name })
		for _, zeros := range []int{0, 1, 2, 3, 4, 9, 10, 511, 512, 2 * mib} {
			for behind, want := range map[string]bool{"": true, "x": false, "BZh9": false, string(file): false} {
				padded := slices.Concat(file, file, make([]byte, zeros), []byte(behind))
				if name == "xz" && (zeros%4 > 0 || behind != "") || behind == string(file) && zeros == 0 {
					continue // FuzzXZ
				}
				if want && len(imagetest.Pack(t, padded, name+" -dc")) != 2*len(data) {
					t.Errorf("%s, %d zeros: the program unpacks something else", name, zeros)
				}
				r, err := Formats[i].NewReader(iotest.OneByteReader(bytes.NewReader(padded)), 0)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(r)
				if (err == nil) != want || want && !bytes.Equal(got, append(bytes.Clone(data), data...)) {
					t.Errorf("%s, %d zeros and %d bytes: got %d bytes and %v", name, zeros, len(behind), len(got), err)
				}
				r.Close()
			}
		}
	}
}

// FuzzXZ reads arbitrary bytes as a file of the .xz format.
func FuzzXZ(f *testing.F) {
	for _, name := range []string{"blocks.xz", "sha256.xz", "padded.xz"} {
		f.Add(testenv.Data(f, "images/"+name))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		one, err := io.ReadAll(io.LimitReader(newXZReader(bytes.NewReader(file), MinMemory), mib))
		if err != nil || len(one) == mib {
			return
		}
		// A second stream behind it adds its content and nothing else.
		two, err := io.ReadAll(newXZReader(bytes.NewReader(append(bytes.Clone(file), file...)), MinMemory))
		if err != nil || !bytes.Equal(two, append(bytes.Clone(one), one...)) {
			t.Errorf("twice the file: got %d bytes and error %v, want twice %d bytes", len(two), err, len(one))
		}
		if len(file) > 40 {
			_, err := io.ReadAll(newXZReader(bytes.NewReader(file[:len(file)-1]), MinMemory))
			if err == nil || errors.Is(err, io.EOF) {
				t.Errorf("without its last byte: got error %v, want one", err)
			}
		}
	})
}

// The reason why the library's reader of .xz files is not used: it allocates as much memory as the file demands, even
// if its dictionary is limited. A failure after an update of the library says that the reason no longer holds.
func TestLibraryDictionary(t *testing.T) {
	const dictionary = 256 * mib
	file := imagetest.Pack(t, []byte("x"), "xz --lzma2=dict=256MiB -c")
	if len(file) > 60 {
		t.Errorf("the file has %d bytes, want at most the 60 of doc.go", len(file))
	}
	allocated := func(read func() (io.Reader, error)) (uint64, error) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r, err := read()
		if err == nil {
			_, err = io.ReadAll(r)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc, err
	}
	n, err := allocated(func() (io.Reader, error) {
		return xz.ReaderConfig{DictCap: MinMemory}.NewReader(bytes.NewReader(file))
	})
	if n < dictionary || err != nil {
		t.Errorf("the library allocated %d bytes and returned %v: it limits the dictionary", n, err)
	}
	n, err = allocated(func() (io.Reader, error) { return newXZReader(bytes.NewReader(file), MinMemory), nil })
	if n > mib || err == nil {
		t.Errorf("got %d bytes allocated and %v, want an error and no dictionary", n, err)
	}
}

func BenchmarkUnpack(b *testing.B) {
	data := imagetest.DiskContent(45, 64*mib, 700<<10)
	for _, command := range []string{"gzip -c", "zstd -q -c", "xz -6 -c", "bzip2 -c", "lz4 -q -c"} {
		file := imagetest.Pack(b, data, command)
		b.Run(command, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				i := slices.IndexFunc(Formats, func(f Format) bool { return f.Detect(file) })
				u, err := Formats[i].NewReader(bytes.NewReader(file), 0)
				if err != nil {
					b.Fatal(err)
				}
				if n, err := io.Copy(io.Discard, u); err != nil || n != int64(len(data)) {
					b.Fatal(fmt.Errorf("%d bytes: %w", n, err))
				}
				u.Close()
			}
		})
	}
}
