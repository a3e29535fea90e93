// Package media tests configuration by virtual media, and the consoles and logins of a machine.
package media
