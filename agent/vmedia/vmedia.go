// Package vmedia takes configuration from the virtual media a BMC attached: the parameters of the conductor's floppy,
// the agent's configuration files on the boot ISO, and the static network data of the config drive.
//
// Names and rules are those of ironic-python-agent's images. Only whole optical drives and small USB disks are looked
// at (see storage/removable); parameters and configuration files only where the kernel's own command line says
// boot_method=vmedia. Nothing is mounted. Everything that is read has a bound.
package vmedia

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"strings"
	"time"

	"ironroot/agent/config"
	"ironroot/agent/fault"
	"ironroot/storage/block"
	"ironroot/storage/removable"
)

const (
	floppyLabel   = "ir-vfd-dev"
	floppyModel   = "virtual media"
	parameterFile = "parameters.txt"
	networkFile   = "openstack/latest/network_data.json"

	maxParameters  = 64 << 10
	maxNetworkData = 4 << 20

	limit = 30 * time.Second // of the wait for media that must come
	scan  = 10 * time.Second // of the wait for USB disks that the kernel is asking what they are
	grace = 3 * time.Second  // for media to appear once drivers are loaded
)

// Options say where to look. The zero value, with Params, is the running machine.
type Options struct {
	System block.System
	Params config.Params // of the kernel's command line
	Log    *slog.Logger
	// Settled is closed when the machine's devices have their drivers; nil means that they have.
	Settled <-chan struct{}
	// Root is the folder below which etc is written; "" is "/".
	Root string

	limit, scan, grace time.Duration // of tests
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Root == "" {
		o.Root = "/"
	}
	if o.limit == 0 {
		o.limit, o.scan, o.grace = limit, scan, grace
	}
	return o
}

// Booted tells whether the machine was booted from virtual media, by the kernel's command line.
func Booted(params config.Params) bool { return params["boot_method"] == "vmedia" }

// Load copies the agent's configuration files from the boot ISO into the root file system and returns the parameters
// of the kernel's command line with those of the floppy over them. Without boot_method=vmedia it returns at once what
// it was given. A floppy without its file, and files that cannot be copied, are errors; media that never appear are
// none, and are waited for at most 30 s.
func Load(ctx context.Context, o Options) (config.Params, error) {
	if !Booted(o.Params) {
		return o.Params, nil
	}
	o = o.withDefaults()
	var floppy, iso bool
	params := maps.Clone(o.Params)
	// As long as nothing names Ironic, the media have to come.
	must := func() bool { return !floppy && !iso && params["ipa-api-url"] == "" }
	err := o.await(ctx, must, func(volumes []*removable.Volume) (bool, error) {
		if v := bootISO(volumes); v != nil && !iso {
			if err := o.copyConfig(v); err != nil {
				return false, err
			}
			iso = true
		}
		if v := parametersFloppy(volumes); v != nil && !floppy {
			more, err := readParameters(v)
			if err != nil {
				return false, err
			}
			o.Log.Info("parameters of the virtual floppy", "device", v.Device.Path, "label", v.Label, "parameters", more)
			maps.Copy(params, more)
			floppy = true
		}
		return !o.scanning() && (floppy || iso && params["ipa-api-url"] != ""), nil
	})
	if err != nil {
		return nil, err
	}
	if !floppy && !iso {
		o.Log.Warn("booted from virtual media (boot_method=vmedia), but neither the parameters' floppy nor the boot ISO with configuration is attached")
	}
	return params, nil
}

// parametersFloppy picks the medium with the floppy's label, else one whose model says what it is.
func parametersFloppy(volumes []*removable.Volume) *removable.Volume {
	for _, v := range volumes {
		if strings.EqualFold(v.Label, floppyLabel) {
			return v
		}
	}
	for _, v := range volumes {
		if strings.Contains(strings.ToLower(v.Device.Model), floppyModel) && !isDisc(v) {
			return v
		}
	}
	return nil
}

// isDisc tells whether a medium is an optical one without parameters: on some BMCs the boot ISO is in a drive of the
// floppy's model.
func isDisc(v *removable.Volume) bool {
	if isBootISO(v) {
		return true
	}
	_, err := v.ReadFile(parameterFile, maxParameters)
	return v.Device.Type == "rom" && errors.Is(err, fs.ErrNotExist)
}

// readParameters reads the floppy's file.
func readParameters(v *removable.Volume) (config.Params, error) {
	data, err := v.ReadFile(parameterFile, maxParameters)
	if err != nil {
		return nil, fault.VirtualMediaBoot("parameters floppy: %w", err)
	}
	return config.ParseCmdline(string(data)), nil
}

// NetworkData returns the network data of the config drive that belongs to this boot, nil where there is none. The
// drive is a medium with the label config-2 whose publisher is the one the kernel parameter ir_pub_id names. A machine
// that booted over the network (BOOTIF) without such an id has none. The drive is waited for only where an id or
// boot_method=vmedia announces it, at most 30 s.
func NetworkData(ctx context.Context, o Options) ([]byte, error) {
	id := o.Params["ir_pub_id"]
	if id == "" && o.Params["BOOTIF"] != "" {
		return nil, nil
	}
	o = o.withDefaults()
	var data []byte
	look := func(volumes []*removable.Volume) (bool, error) {
		for _, v := range volumes {
			if v.Label != "config-2" {
				continue
			}
			if !strings.EqualFold(v.Publisher, id) {
				o.Log.Warn("a config drive of another boot is not looked at", "device", v.Device.Path, "publisher", v.Publisher, "want", id)
				continue
			}
			content, err := v.ReadFile(networkFile, maxNetworkData)
			if errors.Is(err, fs.ErrNotExist) {
				o.Log.Info("the config drive holds no network data", "device", v.Device.Path)
				return true, nil
			}
			if err != nil {
				return false, fault.VirtualMediaBoot("network data: %w", err)
			}
			o.Log.Info("network data of the config drive", "device", v.Device.Path, "bytes", len(content))
			data = content
			return true, nil
		}
		return false, nil
	}
	if id == "" && !Booted(o.Params) {
		_, err := o.look(ctx, look)
		return data, err
	}
	return data, o.await(ctx, func() bool { return id != "" }, look)
}
