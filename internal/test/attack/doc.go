// Package attack tries to escape from the confinement of third-party programs, and to change the ramdisk from there.
// Tests run it in place of these programs.
//
// A successful attack must not harm the machine that runs the tests as root: files are opened only, and system calls
// have invalid arguments. Attacks that mount, unmount or create device nodes change the mount namespace or the file
// system of the process, so the process must have its own.
//
// # One program for every confinement
//
// A list can permit too much, and each confinement also hides files and devices. So this program tries the known
// escapes in each of them: as a container with privileges and without, as a manager, in a manager root, and as the GRUB
// of an image on ext4 and on Btrfs. The package also lists what each confinement permits, with the reason.
package attack
