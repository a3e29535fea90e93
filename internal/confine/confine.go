// Package confine limits the process of a program that is not part of the ramdisk: the system calls and capabilities
// that it can use, what it sees of the ramdisk, and how long the ramdisk waits for its end. storage/bootloader/chroot,
// agent/hardware/external and agent/container combine its functions. What limits something affects the calling
// thread or its mount namespace, and what the thread executes next. [Serve] and [NewDenialSocket] run in the agent and
// decide the system calls that wait for a reply.
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
