// Package route finds the way to a single address: the kernel's or, if that leads nowhere, another link.
package route
