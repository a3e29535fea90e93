package image

// The footer of a VHD, and its copy at the beginning of a dynamic one (Microsoft, "Virtual Hard Disk Image Format
// Specification" 1.0, "Hard Disk Footer Format").
const (
	vhdCookie     = "conectix"
	vhdFooterSize = 512 // bytes
)

// fixedVHD is the format of a raw image that is followed by the footer of a VHD. Without the footer, programs take it
// for what it begins with.
func fixedVHD() format {
	vhd := findFormat("vhd")
	vhd.refusal = "cannot be written to a disk, and this one ends with the footer of a fixed VHD: convert it by " +
		vhd.conversion() + ", or declare it as raw to have it copied as it is"
	return vhd
}

// endsFixedVHD reports whether a file with these last bytes ends with the footer of a VHD. Versions before Virtual PC
// 2004 wrote footers of 511 bytes.
func endsFixedVHD(end []byte) bool {
	for _, size := range []int{vhdFooterSize, vhdFooterSize - 1} {
		if off := len(end) - size; off >= 0 && at(off, vhdCookie)(end) {
			return true
		}
	}
	return false
}
