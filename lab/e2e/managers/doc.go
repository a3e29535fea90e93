// Package managers tests hardware managers that an image contains, and their userland.
package managers
