package removable

import (
	"ironroot/storage/fat"
	"ironroot/storage/iso9660"
)

// node is a file or folder of either file system. What is neither, a link for instance, has neither function.
type node struct {
	name string
	size int64                             // bytes
	list func() ([]node, error)            // of a folder
	read func(limit int64) ([]byte, error) // of a regular file
}

func isoNode(tree *iso9660.FS, file iso9660.File) node {
	n := node{name: file.Name, size: file.Size}
	switch {
	case file.Folder:
		n.list = func() ([]node, error) {
			files, err := tree.List(file)
			return nodes(tree, files, isoNode), err
		}
	case file.Regular:
		n.read = func(limit int64) ([]byte, error) { return tree.Read(file, limit) }
	}
	return n
}

func fatNode(tree *fat.FS, file fat.File) node {
	n := node{name: file.Name, size: file.Size}
	if file.Folder {
		n.list = func() ([]node, error) {
			files, err := tree.List(file)
			return nodes(tree, files, fatNode), err
		}
		return n
	}
	n.read = func(limit int64) ([]byte, error) { return tree.Read(file, limit) }
	return n
}

func nodes[T, F any](tree T, files []F, make func(T, F) node) []node {
	list := []node{}
	for _, file := range files {
		list = append(list, make(tree, file))
	}
	return list
}
