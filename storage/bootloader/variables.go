package bootloader

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"ironroot/storage/efivarfs"
)

// attributes are the attributes of boot variables: non-volatile, boot service and runtime access.
const attributes = 7

var bootPattern = regexp.MustCompile(`^Boot([0-9A-Fa-f]{4})-` + efivarfs.GlobalGUID + `$`)

// variables provides the firmware's variables as files of efivarfs: four bytes of attributes, then the data.
type variables struct {
	dir string
	log *slog.Logger
	// written, if not nil, is called after a variable was written. Tests use it to simulate firmware.
	written func(name string)
}

// install removes the entries that have the option's label, writes the option under the first free number, puts that
// number first in BootOrder, and reads both back. A BootOrder without the number is an error.
func (v variables) install(o loadOption) (number uint16, err error) {
	entries, err := v.bootEntries()
	if err != nil {
		return 0, err
	}
	order, err := v.bootOrder()
	if err != nil {
		return 0, err
	}
	var removed []uint16
	for _, n := range sorted(entries) {
		if old, err := parseLoadOption(entries[n]); err != nil || old.Description != o.Description {
			continue // another owner's entry, or one that cannot be parsed
		}
		if err := v.remove(bootName(n)); err != nil {
			return 0, err
		}
		delete(entries, n)
		removed = append(removed, n)
	}
	number, err = firstFree(entries)
	if err != nil {
		return 0, err
	}
	if err := v.write(bootName(number), o.encode()); err != nil {
		return 0, err
	}
	order = slices.DeleteFunc(order, func(n uint16) bool { return n == number || slices.Contains(removed, n) })
	order = append([]uint16{number}, order...)
	got, err := v.writeOrder(order)
	if err == nil && !slices.Contains(got, number) {
		err = fmt.Errorf("variable BootOrder: got %s, want %s, which starts with the new entry",
			cmp.Or(orderText(got), "nothing"), orderText(order))
	}
	return number, err
}

func bootName(n uint16) string { return fmt.Sprintf("Boot%04X", n) }

func sorted(entries map[uint16][]byte) []uint16 {
	var list []uint16
	for n := range entries {
		list = append(list, n)
	}
	slices.Sort(list)
	return list
}

func firstFree(entries map[uint16][]byte) (uint16, error) {
	for n := range 0xffff {
		if _, used := entries[uint16(n)]; !used {
			return uint16(n), nil
		}
	}
	return 0, errors.New("all boot entries are in use")
}

// bootEntries reads every Boot#### variable.
func (v variables) bootEntries() (map[uint16][]byte, error) {
	files, err := os.ReadDir(v.dir)
	if err != nil {
		return nil, err
	}
	entries := map[uint16][]byte{}
	for _, file := range files {
		m := bootPattern.FindStringSubmatch(file.Name())
		if m == nil {
			continue
		}
		n, err := strconv.ParseUint(m[1], 16, 16)
		if err != nil {
			return nil, err
		}
		data, err := v.read("Boot" + m[1])
		if err != nil {
			data = nil // the number is in use: firmware may list variables that it does not return
		}
		entries[uint16(n)] = data
	}
	return entries, nil
}

func (v variables) bootOrder() ([]uint16, error) {
	data, err := v.read("BootOrder")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var order []uint16
	for i := 0; i+1 < len(data); i += 2 {
		order = append(order, binary.LittleEndian.Uint16(data[i:]))
	}
	return order, nil
}

// writeOrder writes BootOrder, reads it back and returns it. Firmware may sort the numbers, add entries of its own and
// drop numbers without an entry. A difference is logged as a warning.
func (v variables) writeOrder(order []uint16) ([]uint16, error) {
	var data []byte
	for _, n := range order {
		data = binary.LittleEndian.AppendUint16(data, n)
	}
	if err := v.set("BootOrder", data); err != nil {
		return nil, err
	}
	got, err := v.bootOrder()
	if err != nil {
		return nil, fmt.Errorf("read variable BootOrder back: %w", err)
	}
	if !slices.Equal(got, order) {
		v.log.Warn("firmware changed the boot order", "got", orderText(got), "want", orderText(order))
	}
	return got, nil
}

// orderText formats a boot order as efibootmgr does: "0001,0000".
func orderText(order []uint16) string {
	var words []string
	for _, n := range order {
		words = append(words, fmt.Sprintf("%04X", n))
	}
	return strings.Join(words, ",")
}

func (v variables) path(name string) string {
	return filepath.Join(v.dir, name+"-"+efivarfs.GlobalGUID)
}

func (v variables) read(name string) ([]byte, error) {
	f, err := os.Open(v.path(name))
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	data, err := io.ReadAll(io.LimitReader(f, maxOptionSize+5))
	if err != nil {
		return nil, err
	}
	if len(data) < 4 || len(data) > maxOptionSize+4 {
		return nil, fmt.Errorf("variable %s: %d bytes", name, len(data))
	}
	return data[4:], nil
}

// write sets a variable and reads it back: some firmware accepts a variable without storing it.
func (v variables) write(name string, data []byte) error {
	if err := v.set(name, data); err != nil {
		return err
	}
	got, err := v.read(name)
	if err != nil {
		return fmt.Errorf("read variable %s back: %w", name, err)
	}
	if !bytes.Equal(got, data) {
		return fmt.Errorf("variable %s: got %d bytes that differ from the %d bytes written", name, len(got), len(data))
	}
	return nil
}

// set sets a variable by a single write call, as efivarfs requires.
func (v variables) set(name string, data []byte) error {
	path := v.path(name)
	if err := efivarfs.MakeMutable(path); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	content := append([]byte{attributes, 0, 0, 0}, data...)
	_, err = f.Write(content)
	if info, statErr := f.Stat(); err == nil && statErr == nil && info.Size() > int64(len(content)) {
		err = f.Truncate(int64(len(content))) // only for regular files, which tests use: efivarfs sets the size itself
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write variable %s: %w", name, err)
	}
	if v.written != nil {
		v.written(name)
	}
	return nil
}

func (v variables) remove(name string) error {
	path := v.path(name)
	if err := efivarfs.MakeMutable(path); err != nil {
		return err
	}
	return os.Remove(path)
}
