package config

import (
	"go/types"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/go/packages"
)

// readFields returns the fields of the configuration that code of the product reads, by "Type.Field".
func readFields(t *testing.T) map[string]bool {
	t.Helper()
	const mode = packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
		packages.NeedExportFile | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesInfo
	loaded, err := packages.Load(&packages.Config{Context: t.Context(), Mode: mode, Dir: "../.."},
		"ironroot/cmd/...", "ironroot/agent/...", "ironroot/uinit/...")
	if err != nil {
		t.Fatal(err)
	}
	read := map[string]bool{}
	for _, p := range loaded {
		for _, failed := range p.Errors {
			t.Fatalf("%s: %v", p.PkgPath, failed)
		}
		if p.PkgPath == "ironroot/agent/config" {
			continue // which fills and copies every field; what it reads itself is in ownUse
		}
		for _, selection := range p.TypesInfo.Selections {
			field, ok := selection.Obj().(*types.Var)
			if !ok || !field.IsField() || field.Pkg() == nil || field.Pkg().Path() != "ironroot/agent/config" {
				continue
			}
			owner := selection.Recv()
			if pointer, ok := owner.(*types.Pointer); ok {
				owner = pointer.Elem()
			}
			if named, ok := owner.(*types.Named); ok {
				read[named.Obj().Name()+"."+field.Name()] = true
			}
		}
	}
	return read
}

// ownUse are the fields that this package's methods read for others.
func ownUse() []string {
	return []string{
		"Config.APIURL", "Config.TLSMinVersion", "Config.TLSCipherSuites", "Config.Insecure", "Config.CAFile",
		"Config.CertFile", "Config.KeyFile", "Config.SyslogServer",
	}
}

// An option is marked as unused exactly when no code reads it.
func TestUnusedOptionsAreMarked(t *testing.T) {
	read := readFields(t)
	for _, field := range ownUse() {
		read[field] = true
	}
	config := reflect.TypeFor[Config]()
	for _, o := range options() {
		owner := config
		if len(o.index) > 1 {
			owner = config.Field(o.index[0]).Type
		}
		name := owner.Name() + "." + config.FieldByIndex(o.index).Name
		if used := read[name]; used != (o.unused == "") {
			t.Errorf("%s: got code that reads it: %t, tag unused in agent/config/config.go: %q, want one of the two",
				o.fullName(), used, o.unused)
		}
	}
}

func TestUnused(t *testing.T) {
	file := writeFile(t, t.TempDir(), "a.conf",
		"[DEFAULT]\ndriver_name=${listen_host}\nimage_server_password=a$\n[disk_utils]\ndd_block_size=4M\n"+
			"image_convert_attempts=3\n[container]\nrunner=docker\nallowed_containers=a\n")
	c := load(t, Sources{
		Files:   []string{file},
		Environ: []string{"OS_DEFAULT__IMAGE_SERVER_USER=$x"},
		Params:  ParseCmdline(`ipa-lookup-timeout=7 sshkey="ssh-rsa AAAA x" rootpwd="$6$x"`),
	})
	want := []Unused{
		{"$ in driver_name of file " + file, "oslo.config replaces it, this agent does not"},
		{
			"$ in image_server_user of environment OS_DEFAULT__IMAGE_SERVER_USER",
			"oslo.config replaces it, this agent does not",
		},
		{"container.runner", "the ramdisk runs containers without podman and docker"},
		{"disk_utils.dd_block_size", "the writer chooses its block size"},
	}
	if diff := cmp.Diff(want, c.Unused()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// The values that Ironic sends with every lookup are the defaults.
	c = load(t, Sources{})
	if err := c.Set("container.runner", "podman"); err != nil {
		t.Fatal(err)
	}
	if got := c.Unused(); len(got) > 0 {
		t.Errorf("defaults: got %v, want none", got)
	}
}
