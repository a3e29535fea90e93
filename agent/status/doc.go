// Package status stores the agent's state as one value. The parts of the agent update it, and the status screen and the
// report of a node without contact to Ironic display it.
//
// Foreign text is stored as one printable line without secrets.
//
// # The progress line is text for people
//
// Nothing in Ironic would interpret fields, so the line that heartbeats carry is text. The percentage counts bytes on
// the disk, not bytes that have arrived: up to 20 MiB of an image are in memory, which is much of a small image. For
// the same reason it is less than 100 until the first MiB, which is written last, is on the disk. The percentage of a
// compressed image is the file's, because the length of the content is not known in advance. Reading back has no
// percentage of its own: it would either fall from 100 or keep the step below 100 although everything is erased.
//
// The line of an erase weights each disk by its size. The step announces all disks before it writes to the first,
// because a percentage of the disks that have been started would fall whenever another one starts.
package status
