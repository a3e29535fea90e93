package bmc

import (
	"fmt"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
)

func healthy() object { return object{"State": "Enabled", "Health": "OK"} }

func targets() []string        { return []string{"None", "Pxe", "Cd", "Hdd", "UsbCd", "UefiHttp"} }
func overrideStates() []string { return []string{"Disabled", "Once", "Continuous"} }
func modes() []string          { return []string{"UEFI", "Legacy"} }

func system(s *System, _ *http.Request) (any, error) {
	base := path.Join(root, "Systems", s.UUID)
	s.mu.Lock()
	defer s.mu.Unlock()
	power := "Off"
	if s.session != nil {
		power = "On"
	}
	return object{
		"@odata.id": base, "@odata.type": "#ComputerSystem.v1_10_0.ComputerSystem", "Id": s.UUID, "Name": s.Name,
		"UUID": s.UUID, "Manufacturer": "ironroot", "Model": "Lab", "SerialNumber": "SN-" + s.Name,
		"SystemType": "Physical", "BiosVersion": "1.0", "PowerState": power, "Status": healthy(),
		"Boot": object{
			"BootSourceOverrideEnabled": s.enabled, "BootSourceOverrideTarget": s.target,
			"BootSourceOverrideMode": s.mode,
			"HttpBootUri":            s.url,
			"BootSourceOverrideTarget@Redfish.AllowableValues": targets(),
			"BootSourceOverrideMode@Redfish.AllowableValues":   modes(),
		},
		"ProcessorSummary":   object{"Count": s.CPUs, "Model": "QEMU", "Status": healthy()},
		"MemorySummary":      object{"TotalSystemMemoryGiB": float64(s.Memory) / (1 << 30), "Status": healthy()},
		"EthernetInterfaces": link(base, "EthernetInterfaces"),
		"VirtualMedia":       link(base, "VirtualMedia"),
		"Links": object{
			"ManagedBy": []object{link(root, "Managers", s.UUID)}, "Chassis": []object{link(root, "Chassis", s.UUID)},
		},
		"Actions": object{"#ComputerSystem.Reset": object{
			"target": base + "/Actions/ComputerSystem.Reset",
			"ResetType@Redfish.AllowableValues": []string{
				"On", "ForceOn", "ForceOff", "GracefulShutdown", "GracefulRestart", "ForceRestart", "PowerCycle",
				"PushPowerButton",
			},
		}},
	}, nil
}

// patchSystem changes the boot device override.
func patchSystem(s *System, r *http.Request) (any, error) {
	var change struct {
		Boot struct {
			Enabled string  `json:"BootSourceOverrideEnabled"`
			Target  string  `json:"BootSourceOverrideTarget"`
			Mode    string  `json:"BootSourceOverrideMode"`
			URL     *string `json:"HttpBootUri"`
		}
	}
	if err := decode(r, &change); err != nil {
		return nil, err
	}
	return nil, s.override(change.Boot.Enabled, change.Boot.Target, change.Boot.Mode, change.Boot.URL)
}

// SetBoot sets the boot device, as an operator of the BMC does: target and enabled are Redfish's BootSource and
// BootSourceOverrideEnabled.
func (s *System) SetBoot(target, enabled string) error { return s.override(enabled, target, "", nil) }

// override changes the boot device override. Values that are "" or nil remain.
func (s *System) override(enabled, target, mode string, url *string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, field := range []struct {
		name, value string
		allowed     []string
		at          *string
	}{
		{"BootSourceOverrideEnabled", enabled, overrideStates(), &s.enabled},
		{"BootSourceOverrideTarget", target, targets(), &s.target},
		{"BootSourceOverrideMode", mode, modes(), &s.mode},
	} {
		if field.value == "" {
			continue
		}
		if !slices.Contains(field.allowed, field.value) {
			return fmt.Errorf("%w: %s: got %q, want one of %v",
				errBadRequest, field.name, field.value, field.allowed)
		}
		*field.at = field.value
	}
	if url != nil {
		s.url = *url
	}
	s.Log.Info("boot override", "node", s.Name, "target", s.target, "enabled", s.enabled, "mode", s.mode, "url", s.url)
	return nil
}

func resetSystem(s *System, r *http.Request) (any, error) {
	var action struct{ ResetType string }
	if err := decode(r, &action); err != nil {
		return nil, err
	}
	return nil, s.Reset(r.Context(), action.ResetType)
}

func interfaces(s *System, _ *http.Request) (any, error) {
	var ids []string
	for i := range s.MACs {
		ids = append(ids, "nic"+strconv.Itoa(i))
	}
	return members(path.Join(root, "Systems", s.UUID, "EthernetInterfaces"), "EthernetInterfaceCollection", ids), nil
}

func oneInterface(s *System, r *http.Request) (any, error) {
	id := r.PathValue("nic")
	i, err := strconv.Atoi(strings.TrimPrefix(id, "nic"))
	if err != nil || i < 0 || i >= len(s.MACs) {
		return nil, fmt.Errorf("%w: interface %q", errNotFound, id)
	}
	mac := strings.ToUpper(s.MACs[i])
	return object{
		"@odata.id": path.Join(root, "Systems", s.UUID, "EthernetInterfaces", id), "Id": id, "Name": id,
		"@odata.type": "#EthernetInterface.v1_4_0.EthernetInterface",
		"MACAddress":  mac, "PermanentMACAddress": mac, "SpeedMbps": 1000, "Status": healthy(),
	}, nil
}

func manager(s *System, _ *http.Request) (any, error) {
	base := path.Join(root, "Managers", s.UUID)
	return object{
		"@odata.id": base, "@odata.type": "#Manager.v1_3_1.Manager", "Id": s.UUID, "Name": s.Name + "-bmc",
		"ManagerType": "BMC", "FirmwareVersion": "1.0", "UUID": s.UUID, "Status": healthy(),
		"VirtualMedia": link(base, "VirtualMedia"),
		"Links": object{
			"ManagerForServers": []object{link(root, "Systems", s.UUID)},
			"ManagerForChassis": []object{link(root, "Chassis", s.UUID)},
		},
	}, nil
}

func chassis(s *System, _ *http.Request) (any, error) {
	return object{
		"@odata.id": path.Join(root, "Chassis", s.UUID), "@odata.type": "#Chassis.v1_5_0.Chassis", "Id": s.UUID,
		"Name":        s.Name,
		"ChassisType": "RackMount", "Status": healthy(),
		"Links": object{
			"ComputerSystems": []object{link(root, "Systems", s.UUID)},
			"ManagedBy":       []object{link(root, "Managers", s.UUID)},
		},
	}, nil
}

func mediaCollection(_ *System, r *http.Request) (any, error) {
	return members(r.URL.Path, "VirtualMediaCollection", drives()), nil
}

// drive returns the id of the virtual drive named in a request.
func drive(r *http.Request) (string, error) {
	id := r.PathValue("drive")
	if !slices.Contains(drives(), id) {
		return "", fmt.Errorf("%w: drive %q", errNotFound, id)
	}
	return id, nil
}

func oneMedium(s *System, r *http.Request) (any, error) {
	id, err := drive(r)
	if err != nil {
		return nil, err
	}
	base, held := r.URL.Path, s.medium(id)
	kinds := map[string][]string{"Cd": {"CD", "DVD"}, "UsbStick": {"USBStick"}}[id]
	resource := object{
		"@odata.id": base, "@odata.type": "#VirtualMedia.v1_3_0.VirtualMedia", "Id": id, "Name": "Virtual " + id,
		"MediaTypes": kinds, "Inserted": held.url != "", "WriteProtected": true, "TransferMethod": "Stream",
		"Image": nil, "ImageName": nil, "ConnectedVia": "NotConnected",
		"Actions": object{
			"#VirtualMedia.InsertMedia": object{"target": base + "/Actions/VirtualMedia.InsertMedia"},
			"#VirtualMedia.EjectMedia":  object{"target": base + "/Actions/VirtualMedia.EjectMedia"},
		},
	}
	if held.url != "" {
		resource["Image"], resource["ImageName"], resource["ConnectedVia"] = held.url, path.Base(held.url), "URI"
	}
	return resource, nil
}

func insertMedium(s *System, r *http.Request) (any, error) {
	id, err := drive(r)
	if err != nil {
		return nil, err
	}
	var action struct{ Image string }
	if err := decode(r, &action); err != nil {
		return nil, err
	}
	return nil, s.Insert(r.Context(), id, action.Image)
}

func ejectMedium(s *System, r *http.Request) (any, error) {
	id, err := drive(r)
	if err != nil {
		return nil, err
	}
	s.Eject(id)
	return nil, nil
}
