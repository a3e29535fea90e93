// Package listing takes lists from the kernel by rtnetlink in whole: at boot they change while the kernel writes them.
package listing
