package initramfs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	goversion "go/version"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"golang.org/x/mod/modfile"
)

// workspace is a Go workspace with the modules of the agent and of custom managers. The modules use the same versions
// of others: the newest that one of them requires.
type workspace struct {
	dir     string // of go.work and of the module customInit
	product string // directory of the agent's module
	file    modfile.WorkFile
	version string            // of the language, the newest of all modules
	used    map[string]bool   // directories of modules
	modules map[string]string // directories of modules, by path
	overlay map[string]string // files that modules lack, with their content
	dirs    []string          // of managers
	imports []string          // packages of managers
}

func newWorkspace(dir, product string) (*workspace, error) {
	product, err := filepath.Abs(product)
	if err != nil {
		return nil, err
	}
	w := &workspace{
		dir: dir, product: product, used: map[string]bool{}, modules: map[string]string{}, overlay: map[string]string{},
		file: modfile.WorkFile{Syntax: &modfile.FileSyntax{}},
	}
	_, err = w.use(product)
	return w, err
}

// use adds the module in a directory to the workspace and returns its import path.
func (w *workspace) use(dir string) (string, error) {
	name := filepath.Join(dir, "go.mod")
	text, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	module, err := modfile.Parse(name, text, nil)
	if err != nil {
		return "", err
	}
	if module.Module == nil {
		return "", fmt.Errorf("%s names no module", name)
	}
	importPath := module.Module.Mod.Path
	w.modules[importPath] = dir
	if w.used[dir] {
		return importPath, nil
	}
	w.used[dir] = true
	if module.Go != nil && goversion.Compare("go"+module.Go.Version, "go"+w.version) > 0 {
		w.version = module.Go.Version
	}
	if dir == w.product { // in a workspace, Go ignores these settings in go.mod
		for _, setting := range module.Godebug {
			if err := w.file.AddGodebug(setting.Key, setting.Value); err != nil {
				return "", err
			}
		}
	}
	for _, required := range module.Require {
		if required.Mod.Path == productModule { // in any version: it is the one that the image is built from
			if err := w.file.AddReplace(productModule, required.Mod.Version, w.product, ""); err != nil {
				return "", err
			}
		}
	}
	return importPath, w.file.AddUse(dir, "")
}

// add adds the package of a manager. A package outside of all modules gets a module of its own.
func (w *workspace) add(manager string) error {
	dir, err := filepath.Abs(manager)
	if err != nil {
		return err
	}
	if found, err := filepath.Glob(filepath.Join(dir, "*.go")); err != nil || len(found) == 0 {
		return errors.Join(errors.New("no Go files"), err)
	}
	if slices.Contains(w.dirs, dir) {
		return errors.New("duplicate path")
	}
	w.dirs = append(w.dirs, dir)
	root, err := moduleRoot(dir)
	if err != nil {
		return err
	}
	if root == "" {
		return w.addAlone(dir)
	}
	module, err := w.use(root)
	if err != nil {
		return err
	}
	below, err := filepath.Rel(root, dir)
	if err != nil {
		return err
	}
	w.imports = append(w.imports, path.Join(module, filepath.ToSlash(below)))
	return nil
}

// moduleRoot returns the directory of the module that contains a directory, "" if there is none.
func moduleRoot(dir string) (string, error) {
	for {
		_, err := os.Stat(filepath.Join(dir, "go.mod"))
		if err == nil {
			return dir, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if dir == filepath.Dir(dir) {
			return "", nil
		}
		dir = filepath.Dir(dir)
	}
}

// addAlone adds a package that belongs to no module.
func (w *workspace) addAlone(dir string) error {
	name := fmt.Sprintf("ironroot-manager%d", len(w.imports)) // not the directory's name: it must not change the image
	w.overlay[filepath.Join(dir, "go.mod")] = "module " + name + "\n\ngo " + w.version + "\n"
	w.imports, w.modules[name] = append(w.imports, name), dir
	return w.file.AddUse(dir, "")
}

// write writes the workspace and returns the flags that make Go use it.
func (w *workspace) write() ([]string, error) {
	if err := w.file.AddGoStmt(w.version); err != nil {
		return nil, err
	}
	if err := w.file.AddUse(w.dir, ""); err != nil {
		return nil, err
	}
	var main bytes.Buffer
	if err := customMain.Execute(&main, w.imports); err != nil {
		return nil, err
	}
	files := map[string][]byte{
		"go.mod":  []byte("module " + customInit + "\n\ngo " + w.version + "\n"),
		"main.go": main.Bytes(),
		"go.work": modfile.Format(w.file.Syntax),
	}
	replaced := map[string]string{}
	for name, text := range w.overlay {
		file := fmt.Sprintf("module%d", len(replaced))
		replaced[name], files[file] = filepath.Join(w.dir, file), []byte(text)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return nil, err
	}
	files["overlay.json"] = overlay
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(w.dir, name), data, 0o600); err != nil {
			return nil, err
		}
	}
	return []string{"-overlay", filepath.Join(w.dir, "overlay.json")}, nil
}
