package generic

import (
	"context"

	"ironroot/agent/cleaning"
	"ironroot/agent/hardware"
	"ironroot/agent/node"
)

// cleaning returns the steps on the disks of this machine.
func (m *Manager) cleaning() *cleaning.Steps {
	return cleaning.New(cleaning.Options{
		Config: m.o.Config, System: m.o.System, Disks: m.o.Disks, Log: m.o.Log, Journal: m.o.Journal,
		Version: m.o.Version, Dialer: m.o.Dialer, Board: m.o.Board, Settled: m.o.Settled, Kernel: m.kernel,
	})
}

// PreviewErase describes what erase_devices would do, see [cleaning.Steps.PreviewErase].
func (m *Manager) PreviewErase(ctx context.Context, n *node.Node) ([]cleaning.Decision, error) {
	return m.cleaning().PreviewErase(ctx, n)
}

func (m *Manager) eraseDevices(ctx context.Context, call hardware.Call) (any, error) {
	return m.cleaning().EraseDevices(ctx, call.Node)
}

func (m *Manager) eraseMetadata(ctx context.Context, call hardware.Call) (any, error) {
	return m.cleaning().EraseMetadata(ctx, call.Node)
}

func (m *Manager) eraseExpress(ctx context.Context, call hardware.Call) (any, error) {
	return m.cleaning().EraseExpress(ctx, call.Node)
}

func (m *Manager) erasePstore(ctx context.Context, _ hardware.Call) (any, error) {
	return m.cleaning().ErasePstore(ctx)
}

// nvramArguments are the arguments of clean_uefi_nvram.
func nvramArguments() map[string]hardware.ArgInfo {
	return map[string]hardware.ArgInfo{cleaning.MatchPatterns: {Description: "" +
		"List of regular expressions in RE2 syntax. Boot entries of the UEFI firmware whose device path matches any " +
		"of them, ignoring case, are removed. The default matches entries for disk partitions and for the loaders " +
		"shim and grub."}}
}

func (m *Manager) cleanUEFINVRAM(ctx context.Context, call hardware.Call) (any, error) {
	return nil, m.cleaning().RemoveBootEntries(ctx, call.Args[cleaning.MatchPatterns])
}
