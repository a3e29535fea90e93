// Package license finds the licences of the modules and packages that images are built from, as expressions of SPDX: Go
// modules have them in their files, Debian packages in their copyright files. A licence that is not on the list of SPDX
// gets an ID that begins with LicenseRef, and its text.
//
// # Texts are identified and cached
//
// google/licensecheck, which pkg.go.dev uses, identifies the licences of Go modules by their texts; a table would be
// outdated with the next module. It takes about a second and is not part of the ramdisk. The licences of kernel modules
// are decompressed once and then cached by the hash of the file, and so are the copyright files of packages, which are
// at the end of archives of up to 100 MB.
package license
