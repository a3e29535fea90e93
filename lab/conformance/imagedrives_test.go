//go:build linux

package conformance

import (
	"slices"
	"testing"
)

// buildDriveImages builds images with partitions for config drives.
func buildDriveImages(t *testing.T, files contents) {
	t.Helper()
	drive := decompress(t, isoGzip)
	plain := make([]byte, imageSize)
	copy(plain[3*mib:], decompress(t, ext4Gzip))
	withDrive := slices.Clone(plain)
	copy(withDrive[mib:], drive)
	second := gptPartition{linuxType, uuidPrefix + "04", "second", 6 * mib, mib}
	small := slices.Clone(gptParts)
	small[0].size = 256 << 10 // less than the drive
	files["drive.gpt"] = withGPT(withDrive, imageSize, 512, gptParts)
	files["small.gpt"] = withGPT(withDrive, imageSize, 512, small)
	copy(withDrive[6*mib:], drive)
	files["two.gpt"] = withGPT(withDrive, imageSize, 512, append(slices.Clone(gptParts), second))
	withMBR := func(partitions ...mbrPartition) []byte {
		return slices.Concat(mbr(0x11223344, partitions...), plain[512:])
	}
	one, root := mbrPartition{0x83, 2048, 2048}, mbrPartition{0x83, 6144, 4096}
	files["three.mbr"] = withMBR(one, root, mbrPartition{0x83, 10240, 1024})
	files["four.mbr"] = withMBR(one, root, mbrPartition{0x83, 10240, 1024}, mbrPartition{0x83, 12288, 1024})
	files["gap.mbr"] = withMBR(mbrPartition{}, one, mbrPartition{}, root)
	extended := withMBR(one, root, mbrPartition{5, 10240, 4096})
	copy(extended[10240*512:], mbr(0, mbrPartition{0x83, 2048, 1024}))
	files["extended.mbr"] = extended
	files["end.mbr"] = withMBR(one, mbrPartition{0x83, 6144, 66*2048 - 6144}) // to 66 of 70 MiB
	files["most.mbr"] = withMBR(one, mbrPartition{0x83, 6144, 5*2048 - 6144}) // to 5 of 70 MiB
	copy(files["most.mbr"][7*mib:], pattern("unused", 512<<10))
}

// driveTable are config drives of images of whole disks.
func driveTable() []imageRow {
	const iso = "{configdrive config-2.iso}"
	var rows []imageRow
	add := func(name, file, disk string, drive any) {
		rows = append(rows, imageRow{
			name: "drive, " + name, file: file, format: "raw", stream: true, disk: disk, drive: drive,
		})
	}
	add("mbr", "mbr.raw", "", iso)
	add("existing partition", "drive.gpt", "", iso)
	add("existing partition that is too small", "small.gpt", "", iso)
	add("two existing partitions", "two.gpt", "", iso)
	add("three primary partitions", "three.mbr", "", iso)
	add("four primary partitions", "four.mbr", "", iso)
	add("mbr with unused entries", "gap.mbr", "", iso)
	add("extended partition", "extended.mbr", "", iso)
	add("no free space at the end", "end.mbr", "SMALL", iso)
	add("small disk", "most.mbr", "SMALL", iso)
	add("small disk with gpt", "gpt.raw", "SMALL", iso)
	add("gpt on a large disk", "gpt.raw", "BIG", iso)
	return rows
}
