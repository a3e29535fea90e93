package initramfs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

// productModule is the module that contains the agent, productInit its /init, and customInit the module of an /init
// with custom hardware managers.
const (
	productModule = "ironroot"
	productInit   = productModule + "/uinit"
	customInit    = "ironroot-init"
)

// customMain is /init with custom hardware managers. The data is the import paths of their packages.
var customMain = template.Must(template.New("main.go").Parse(`//go:debug fips140=off
package main

import (
	"ironroot/agent"
	"ironroot/agent/hardware"
	"ironroot/uinit/boot"
{{range $i, $path := .}}
	manager{{$i}} {{printf "%q" $path}}{{end}}
)

func main() {
	boot.Main(boot.AgentWith(func(o *agent.Options) {
		o.Managers = []hardware.New{
{{- range $i, $path := .}}
			manager{{$i}}.New,{{end}}
		}
	}))
}
`))

// init builds /init.
func (b *builder) init(ctx context.Context) ([]byte, error) {
	if len(b.Managers) == 0 {
		return b.goBuild(ctx, b.Init, "off")
	}
	if b.Init != productInit {
		return nil, fmt.Errorf("hardware managers in %s: only %s has managers", b.Init, productInit)
	}
	dir, err := os.MkdirTemp("", "ironroot-managers-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a leftover does no harm
	w, err := newWorkspace(dir, b.Dir)
	if err != nil {
		return nil, err
	}
	for _, manager := range b.Managers {
		b.say("adding hardware manager %s", manager)
		if err := w.add(manager); err != nil {
			return nil, fmt.Errorf("hardware manager %s: %w", manager, err)
		}
	}
	b.managerDirs = w.modules
	flags, err := w.write()
	if err != nil {
		return nil, err
	}
	program, err := b.goBuild(ctx, customInit, filepath.Join(dir, "go.work"), flags...)
	if err != nil {
		text := strings.ReplaceAll(err.Error(), dir, "generated")
		if strings.Contains(text, ".New") {
			text += "\na package with a manager has the function New(hardware.Machine) hardware.Manager"
		}
		return nil, fmt.Errorf("hardware managers %s: %s", strings.Join(b.Managers, ", "), text)
	}
	return program, nil
}
