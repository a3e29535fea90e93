package tree

import (
	"ironroot/storage/fat"
	"ironroot/storage/iso9660"
)

// Node is a file or directory. Other types, such as symbolic links, have neither function.
type Node struct {
	Name string
	Size int64                             // bytes; 0 for directories of FAT
	List func() ([]Node, error)            // of a directory: its files and directories, sorted by name
	Read func(limit int64) ([]byte, error) // of a regular file: its first limit bytes, or all if it is shorter
}

func isoNode(f *iso9660.FS, file iso9660.File) Node {
	n := Node{Name: file.Name, Size: file.Size}
	switch {
	case file.IsDir:
		n.List = func() ([]Node, error) {
			files, err := f.List(file)
			return nodes(f, files, isoNode), err
		}
	case file.Regular:
		n.Read = func(limit int64) ([]byte, error) { return f.Read(file, limit) }
	}
	return n
}

func fatNode(f *fat.FS, file fat.File) Node {
	n := Node{Name: file.Name, Size: file.Size}
	if file.IsDir {
		n.List = func() ([]Node, error) {
			files, err := f.List(file)
			return nodes(f, files, fatNode), err
		}
		return n
	}
	n.Read = func(limit int64) ([]byte, error) { return f.Read(file, limit) }
	return n
}

func nodes[T, F any](fs T, files []F, node func(T, F) Node) []Node {
	list := []Node{}
	for _, file := range files {
		list = append(list, node(fs, file))
	}
	return list
}
