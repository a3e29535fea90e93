// Package nfittest describes machines with persistent memory to tests.
package nfittest

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/uuid"

	"ironroot/storage/nfit"
)

// Persistent is the type of a range of persistent memory.
var Persistent = uuid.MustParse("66f0d379-b4f3-4074-ac43-0d3318b78cdb")

// Table returns a table of ranges.
func Table(ranges ...nfit.Range) []byte {
	le := binary.LittleEndian
	table := make([]byte, 40, 40+56*len(ranges))
	copy(table, "NFIT")
	for _, r := range ranges {
		span := make([]byte, 56)
		le.PutUint16(span[2:], uint16(len(span)))
		le.PutUint16(span[4:], r.Index)
		le.PutUint32(span[16:], binary.BigEndian.Uint32(r.Type[:]))
		le.PutUint16(span[20:], binary.BigEndian.Uint16(r.Type[4:]))
		le.PutUint16(span[22:], binary.BigEndian.Uint16(r.Type[6:]))
		copy(span[24:], r.Type[8:])
		le.PutUint64(span[32:], r.Base)
		le.PutUint64(span[40:], r.Size)
		table = append(table, span...)
	}
	le.PutUint32(table[4:], uint32(len(table)))
	var sum byte
	for _, b := range table {
		sum += b
	}
	table[9] = -sum
	return table
}

// Machine describes a machine below root, as the kernel does: each range is a region with a namespace, whose block
// device is pmem followed by the range's index.
func Machine(t testing.TB, root string, ranges ...nfit.Range) {
	t.Helper()
	files := map[string]string{nfit.TableFile: string(Table(ranges...))}
	for _, r := range ranges {
		name := fmt.Sprintf("pmem%d", r.Index)
		region := fmt.Sprintf("devices/LNXSYSTM:00/ACPI0012:00/ndbus0/region%d", r.Index)
		namespace := fmt.Sprintf("%s/namespace%d.0", region, r.Index)
		device := namespace + "/block/" + name
		files[region+"/nfit/range_index"] = fmt.Sprintf("%d\n", r.Index)
		files[region+"/resource"] = fmt.Sprintf("%#x\n", r.Base)
		files[region+"/size"] = fmt.Sprintf("%d\n", r.Size)
		files[device+"/size"] = fmt.Sprintf("%d\n", r.Size/512)
		for link, target := range map[string]string{
			device + "/device": namespace, "block/" + name: device, "class/block/" + name: device,
		} {
			link = filepath.Join(root, "sys", link)
			makeDir(t, filepath.Dir(link))
			if err := os.Symlink(filepath.Join(root, "sys", target), link); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, content := range files {
		path := filepath.Join(root, "sys", name)
		makeDir(t, filepath.Dir(path))
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func makeDir(t testing.TB, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
}
