package inventory

import (
	"ironroot/agent/inventory/smbios"
	"ironroot/internal/goroutine"
	"ironroot/storage/sysfs"
)

func (s *Source) memory() Memory {
	var m Memory
	data, err := s.Read(s.o.System.Proc("meminfo"))
	if err == nil {
		m.Total, err = sysfs.ParseMeminfo(data, "MemTotal")
	}
	if err != nil {
		s.o.Log.Warn("inventory without memory size", "err", err)
	}
	physical, err := s.physicalMemory()
	if err != nil {
		s.o.Log.Warn("inventory without physical memory", "err", err)
		return m
	}
	mib := physical >> 20
	m.PhysicalMB = &mib
	return m
}

// physicalMemory returns the total size of the memory devices (type 17) of the SMBIOS tables, in bytes.
func (s *Source) physicalMemory() (int64, error) {
	table, err := s.SMBIOS()
	if err != nil { // devices can be missing
		return 0, err
	}
	var size int64
	for _, device := range table.All(smbios.TypeMemoryDevice) {
		size += device.MemorySize()
	}
	return size, nil
}

// SMBIOS returns the firmware's tables, which are read once: they do not change. If a structure is malformed, SMBIOS
// returns those before it together with the error, which is logged.
func (s *Source) SMBIOS() (*smbios.Table, error) {
	s.tablesOnce.Do(func() {
		s.tablesErr = goroutine.Catch(func() (err error) {
			s.tables, err = s.readSMBIOS()
			return err
		})
	})
	return s.tables, s.tablesErr
}

func (s *Source) readSMBIOS() (*smbios.Table, error) {
	entry, err := s.Read(s.o.System.Sys("firmware/dmi/tables/smbios_entry_point"))
	if err != nil {
		return nil, err
	}
	data, err := s.Read(s.o.System.Sys("firmware/dmi/tables/DMI"))
	if err != nil {
		return nil, err
	}
	table, err := smbios.Parse(entry, data)
	if table != nil && err != nil {
		s.o.Log.Warn("SMBIOS table malformed, using the structures before the error", "err", err)
	}
	return table, err
}
