package confine

import "io"

// MaxOutput is the number of bytes that Tail keeps.
const MaxOutput = 4 << 10

// Tail reads the output of a program until no process can write to it or a read fails, and returns the last MaxOutput
// bytes.
func Tail(in io.Reader) []byte {
	var kept []byte
	piece := make([]byte, MaxOutput)
	for {
		n, err := in.Read(piece)
		kept = append(kept, piece[:n]...)
		kept = kept[max(0, len(kept)-MaxOutput):]
		if err != nil {
			return kept
		}
	}
}
