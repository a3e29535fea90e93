package initramfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/u-root/mkuimage/cpio"

	"ironroot/initramfs/squashfs"
)

// managersDir is the directory of executables that are managers, rootsDir the directory of the manager roots: the agent
// looks for them there.
const (
	managersDir = "usr/lib/ironroot/managers"
	rootsDir    = "usr/lib/ironroot/roots"
)

// rootGroup is the group of modules that manager roots need.
const rootGroup = "roots"

// rootDirs are the directories of a root where the ramdisk mounts something. Their content is omitted.
var rootDirs = []string{"dev", "proc", "sys", "run", "tmp"}

var rootName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

// roots returns the records of the manager roots.
func (b *builder) roots(ctx context.Context) ([]cpio.Record, error) {
	if len(b.ManagerRoots) == 0 {
		return nil, nil
	}
	records := []cpio.Record{cpio.Directory(rootsDir, 0o755)}
	var names []string
	for _, source := range b.ManagerRoots {
		name, err := rootNameOf(source)
		if err != nil {
			return nil, fmt.Errorf("manager root %s: %w", source, err)
		}
		if slices.Contains(names, name) {
			return nil, fmt.Errorf("manager root %s: another one is named %s, too", source, name)
		}
		names = append(names, name)
		b.say("packing manager root %s", source)
		image, err := b.packRoot(ctx, source)
		if err != nil {
			return nil, fmt.Errorf("manager root %s: %w", source, err)
		}
		records = append(records, cpio.StaticFile(path.Join(rootsDir, name+".squashfs"), string(image), 0o644))
		b.note(path.Join(rootsDir, name+".squashfs"), origin{own: true})
		b.countPacked("manager roots", 1, int64(len(image)), int64(len(image)))
	}
	return records, nil
}

// packRoot returns the file system of a root.
func (b *builder) packRoot(ctx context.Context, source string) ([]byte, error) {
	entries, err := b.rootEntries(ctx, source)
	if err != nil {
		return nil, err
	}
	added, err := adapterEntries(entries)
	if err != nil {
		return nil, err
	}
	entries = append(entries, added...)
	managers, err := checkManagers(entryFiles(entries), b.Arch)
	if err != nil {
		return nil, err
	}
	b.managers = append(b.managers, managers...)
	return squashedRoot(ctx, entries)
}

// squashedRoot returns the file system with the entries of a root.
func squashedRoot(ctx context.Context, entries []squashfs.Entry) ([]byte, error) {
	if err := checkNoEvidenceKeys(ctx, entries); err != nil {
		return nil, err
	}
	image, err := squashfs.Image(entries)
	if err == nil && len(image) > math.MaxUint32 {
		err = errors.New("packed root larger than 4 GiB, the limit of an initramfs")
	}
	return image, err
}

// rootEntries returns the files of a root, with empty rootDirs.
func (b *builder) rootEntries(ctx context.Context, source string) ([]squashfs.Entry, error) {
	entries, err := b.sourceEntries(ctx, source)
	if err == nil && len(entries) == 0 {
		err = errors.New("no files")
	}
	return withRootDirs(entries), err
}

// sourceEntries returns the files of a directory or a container image.
func (b *builder) sourceEntries(ctx context.Context, source string) ([]squashfs.Entry, error) {
	if isContainer, err := isContainerImage(source); err != nil {
		return nil, err
	} else if !isContainer {
		return directoryEntries(ctx, source)
	}
	image, err := b.containerImage(ctx, source)
	if err != nil {
		return nil, err
	}
	return imageEntries(image)
}

// rootNameOf returns the name of a root: the last part of its source, without tag, digest and suffix.
func rootNameOf(source string) (string, error) {
	var name string
	if reference, ok := cutReference(source); ok {
		name, _, _ = strings.Cut(reference[strings.LastIndex(reference, "/")+1:], "@")
		name, _, _ = strings.Cut(name, ":")
	} else {
		absolute, err := filepath.Abs(source)
		if err != nil {
			return "", err
		}
		name = strings.TrimSuffix(filepath.Base(absolute), ".tar")
	}
	if !rootName.MatchString(name) {
		return "", fmt.Errorf("name %q: want %v", name, rootName)
	}
	return name, nil
}

// directoryEntries returns the files of a directory. Files that are neither regular nor links are omitted.
func directoryEntries(ctx context.Context, dir string) ([]squashfs.Entry, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	var entries []squashfs.Entry
	links := map[inodeKey]string{}
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		below, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		e := squashfs.Entry{Path: filepath.ToSlash(below), Mode: info.Mode()}
		switch {
		case d.IsDir():
		case d.Type() == fs.ModeSymlink:
			if e.Target, err = os.Readlink(name); err != nil {
				return err
			}
		case d.Type().IsRegular():
			e.Size, e.ModTime = info.Size(), info.ModTime()
			e.Content = squashfs.Path(name)
			if key, ok := sharedInode(info); ok {
				if first, ok := links[key]; ok {
					e.Link = first
				} else {
					links[key] = e.Path
				}
			}
		default:
			return nil
		}
		entries = append(entries, e)
		return nil
	})
	return entries, err
}

// withRootDirs returns the entries with empty rootDirs.
func withRootDirs(entries []squashfs.Entry) []squashfs.Entry {
	entries = slices.DeleteFunc(entries, func(e squashfs.Entry) bool {
		top, _, _ := strings.Cut(e.Path, "/")
		return slices.Contains(rootDirs, top)
	})
	for _, dir := range rootDirs {
		entries = append(entries, squashfs.Entry{Path: dir, Mode: fs.ModeDir | 0o755})
	}
	return entries
}
