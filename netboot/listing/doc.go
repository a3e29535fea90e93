// Package listing lists all links and addresses of the kernel by rtnetlink. It repeats a list that changed while the
// kernel wrote it, as happens at boot.
package listing
