// Package configdrive fetches a config drive and writes it to a partition labelled config-2 at the end of a disk.
//
// The drive is the image of a small file system (ISO 9660 or FAT) for cloud-init and Ignition. It is written
// unchanged, except on a disk whose sectors are larger than the image's blocks, where no system could mount it. There,
// or if requested, its files are copied to a new FAT file system. Owners, modes and times are not preserved then, and
// an ISO 9660 file system must have Rock Ridge names.
//
// # Copied only where necessary
//
// ironic-python-agent writes a config drive unchanged, tries to mount it, and copies it into a new FAT file system if
// that fails. The failure can be predicted: a file system with blocks smaller than the disk's sectors cannot be
// mounted. So nothing is mounted, and the files are read by the bounded readers that read virtual media. FAT was chosen
// because its writer is small, and fsck.vfat finds no errors. FAT supports neither symbolic links nor case-sensitive
// names. A drive that needs them is rejected with an error that names the file, and not copied in part. Files of ext4
// cannot be read here, so a drive of ext4 with blocks smaller than the sectors is rejected before the disk is changed.
//
// # Only file systems are accepted
//
// ironic-python-agent also writes content without a file system, such as a page of a proxy or gzip data that is not
// encoded as base64. No instance finds its metadata there, so only ISO 9660, FAT and ext file systems are accepted. The
// drive is fetched before the image, because ironic-python-agent's order leaves a disk that boots without a config
// drive if the drive cannot be fetched. Fetching and unpacking it first takes no additional time, and with a broken one
// the disk is not changed.
package configdrive
