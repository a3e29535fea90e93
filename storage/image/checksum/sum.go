package checksum

import "fmt"

// Sum is the checksum of a file.
type Sum struct {
	Algorithm string // one of Algorithms
	Value     string // hexadecimal digits, in either case
	File      string // URL of the checksum file that contained Value, without credentials and query; may be empty
}

// MismatchError means that a file has another checksum than was expected.
type MismatchError struct {
	URL       string // without credentials and query
	Algorithm string
	Want, Got string // hexadecimal
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("image %s has the wrong checksum: got %s %s, want %s", e.URL, e.Algorithm, e.Got, e.Want)
}
