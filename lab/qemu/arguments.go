package qemu

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// arguments returns QEMU's command line. The console and the QMP monitor use file descriptors 3 and 4.
func arguments(c Config) ([]string, error) {
	args := []string{
		"-name", escape(c.Name), "-nodefaults", "-no-user-config", "-display", "none", "-S",
		"-smp", strconv.Itoa(c.CPUs),
		"-m", strconv.FormatInt(c.Memory>>10, 10) + "k",
		"-chardev", "socket,id=console,fd=3", "-serial", "chardev:console",
		"-chardev", "socket,id=qmp,fd=4", "-mon", "chardev=qmp,mode=control",
		"-object", "rng-random,id=rng,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=rng",
	}
	args = append(args, boardArguments(c)...)
	firmware, err := firmwareArguments(c)
	if err != nil {
		return nil, err
	}
	args = append(args, firmware...)
	disks, err := diskArguments(c)
	if err != nil {
		return nil, err
	}
	args = append(args, disks...)
	for i, n := range c.NICs {
		args = append(args, nicArguments(i, n)...)
	}
	args = append(args, bootArguments(c)...)
	for _, s := range c.SMBIOS {
		args = append(args, "-smbios", s)
	}
	return append(args, c.Extra...), nil
}

// boardArguments returns the arguments for the board, its graphics card and its processors.
func boardArguments(c Config) []string {
	if c.Arch == "arm64" {
		// A real processor model, so that the guest can read its name.
		return []string{
			"-machine", "virt", "-accel", "tcg,thread=" + tcgThreads("qemu-system-aarch64"), "-cpu", "neoverse-n1",
		}
	}
	machine := "q35,graphics=off"
	if c.Firmware == UEFISecure {
		machine += ",smm=on"
	}
	return append([]string{"-machine", machine, "-vga", "std"}, accelArguments(c)...)
}

// kernelParameters returns the parameters of a kernel that QEMU loads. A kernel on emulated processors learns the
// frequency of their time-stamp counter: if the host delays it while it measures the frequency, its clock runs many
// times too fast or too slow.
func kernelParameters(c Config) string {
	if c.Append == "" || c.Arch == "arm64" || usesKVM(c) || tscKHz() == 0 {
		return c.Append
	}
	return c.Append + " tsc_early_khz=" + strconv.FormatInt(tscKHz(), 10)
}

func bootArguments(c Config) []string {
	var args []string
	if c.Kernel != "" {
		args = append(args, "-kernel", c.Kernel)
	}
	if c.Initrd != "" {
		args = append(args, "-initrd", c.Initrd)
	}
	if parameters := kernelParameters(c); parameters != "" {
		args = append(args, "-append", parameters)
	}
	var actions []string
	if c.OnReboot == Shutdown {
		actions = append(actions, "reboot=shutdown")
	}
	if c.OnPowerOff == Pause {
		actions = append(actions, "shutdown=pause")
	}
	if len(actions) > 0 {
		args = append(args, "-action", strings.Join(actions, ","))
	}
	return args
}

func firmwareArguments(c Config) ([]string, error) {
	switch c.Firmware {
	case BIOS:
		if c.Arch == "arm64" {
			return []string{"-bios", FirmwareARM}, nil
		}
		return nil, nil
	case UEFI, UEFISecure:
	default:
		return nil, fmt.Errorf("firmware %q is unknown", c.Firmware)
	}
	code, _, err := firmwareFiles(c.Arch, c.Firmware)
	if err != nil {
		return nil, err
	}
	args := []string{
		"-drive", "if=pflash,format=raw,unit=0,readonly=on,file=" + code,
		"-drive", "if=pflash,format=raw,unit=1,file=" + escape(varsFile(c)),
	}
	if c.Firmware == UEFISecure && c.Arch != "arm64" { // on arm64, QEMU does not protect the variables from the guest
		args = append(args, "-global", "driver=cfi.pflash01,property=secure,value=on",
			"-global", "ICH9-LPC.disable_s3=1")
	}
	return args, nil
}

func varsFile(c Config) string { return c.Dir + "/vars.fd" }

// escape doubles the commas of a value, as QEMU's option syntax requires.
func escape(value string) string { return strings.ReplaceAll(value, ",", ",,") }

// prepareFiles creates missing disk images and copies the firmware's variables into the machine's directory. An
// existing copy is kept, so that boot entries persist for the next machine in the same directory.
func prepareFiles(c Config) error {
	for _, d := range c.Disks {
		if err := makeDisk(d); err != nil {
			return err
		}
		if d.Log != "" {
			if err := os.WriteFile(d.Log, nil, 0o600); err != nil {
				return err
			}
		}
	}
	if c.Firmware == BIOS {
		return nil
	}
	if !exists(varsFile(c)) {
		_, vars, err := firmwareFiles(c.Arch, c.Firmware)
		if err != nil {
			return err
		}
		if err := copyFile(vars, varsFile(c)); err != nil {
			return err
		}
	}
	if c.HTTPBoot == "" {
		return nil
	}
	return Flash(varsFile(c)).bootByHTTP(c.HTTPBoot)
}

func makeDisk(d Disk) error {
	if exists(d.File) {
		return nil
	}
	if d.Size == 0 || (d.Format != "" && d.Format != "raw") {
		return fmt.Errorf("disk %s does not exist; only raw disks with a size are made on the spot", d.File)
	}
	f, err := os.Create(d.File)
	if err != nil {
		return err
	}
	if err := f.Truncate(d.Size); err != nil {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // only read
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		return errors.Join(fmt.Errorf("copy %s to %s: %w", from, to, err), out.Close())
	}
	return out.Close()
}

func nicArguments(i int, n NIC) []string {
	id := "net" + strconv.Itoa(i)
	netdev := n.Netdev
	switch tap, isTap := strings.CutPrefix(netdev, "tap:"); {
	case netdev == "" || netdev == "user":
		netdev = userNet(n)
	case isTap:
		netdev = "tap,ifname=" + tap + ",script=no,downscript=no"
	}
	model := n.Model
	if model == "" {
		model = "virtio-net-pci"
	}
	device := fmt.Sprintf("%s,id=nic%d,netdev=%s", model, i, id)
	if n.MAC != "" {
		device += ",mac=" + n.MAC
	}
	if n.Boot != 0 {
		device += ",bootindex=" + strconv.Itoa(n.Boot)
	}
	if n.Boot == 0 || n.NoROM {
		device += ",romfile="
	}
	return []string{"-netdev", netdev + ",id=" + id, "-device", device}
}

func userNet(n NIC) string {
	netdev := "user"
	if n.Restrict {
		netdev += ",restrict=on"
	}
	if n.TFTP != "" {
		netdev += ",tftp=" + escape(n.TFTP)
	}
	if n.BootFile != "" {
		netdev += ",bootfile=" + escape(n.BootFile)
	}
	for _, f := range n.Forwards {
		netdev += fmt.Sprintf(",hostfwd=tcp:127.0.0.1:%d-:%d", f.Host, f.Guest)
	}
	return netdev
}

// jsonArgument encodes options in QEMU's JSON syntax, in which values need no escaping.
func jsonArgument(options map[string]any) (string, error) {
	text, err := json.Marshal(options)
	return string(text), err
}
