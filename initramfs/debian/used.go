package debian

// Used are the files of packages that an image consists of.
type Used struct {
	Archive *Archive
	Debs    []string // paths of the packages
	Files   []UsedFile
}

// UsedFile is a file of a package in an image.
type UsedFile struct {
	Name    string // path in the image, or the part of the image that contains it
	Path    string // path in the package
	Content []byte
}
