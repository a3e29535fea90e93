//go:build linux

package conformance

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/lab/qemu"
)

// driveDiskSize is the size of the disks of the group.
const driveDiskSize = 256 * mib

// Offsets of the partition that IPA creates for a config drive. On a GPT, the end of the disk has the backup table.
const (
	driveInMBR = driveDiskSize - 64*mib
	driveInGPT = driveDiskSize - 65*mib
)

// buildConfigDrives builds config drives as Ironic and other clients send them, and images for them. The drives do not
// change with the version of a program: whether IPA accepts a text depends on each of its characters.
func buildConfigDrives(t *testing.T, files contents) {
	t.Helper()
	testenv.Programs(t, "qemu-img")
	drive, root := decompress(t, isoGzip), decompress(t, ext4Gzip)
	files["config-2.iso"] = drive
	files["drive.fat"] = decompress(t, testenv.Data(t, "media/fat12.img.gz"))
	files["drive.ext4"] = root
	files["drive.junk"] = pattern("no file system", mib)
	files["drive.empty"] = []byte{}
	files["drive.64"] = append(slices.Clone(drive), make([]byte, 64*mib-len(drive))...)
	files["drive.65"] = append(slices.Clone(drive), make([]byte, 64*mib+1-len(drive))...)
	files["drive.gz"] = isoGzip
	files["drive.gz.1"], files["drive.gz.2"] = isoGzip[:600], isoGzip[600:] // 600 bytes are base64 without padding
	files["drive.base64"] = []byte(base64.StdEncoding.EncodeToString(isoGzip))
	files["drive.lines"] = lines(files["drive.base64"])
	files["junk.base64"] = []byte(base64.StdEncoding.EncodeToString(pattern("junk", 3000)))
	files["odd.junk"] = append(pattern("no file system", mib), 'x')
	files["cut.gz"] = isoGzip[:800]
	files["sum.gz"] = slices.Clone(isoGzip)
	files["sum.gz"][len(isoGzip)-8] ^= 1 // the checksum of the content
	files["zeros.gz"] = append(slices.Clone(isoGzip), make([]byte, 512)...)
	files["behind.gz"] = append(slices.Clone(isoGzip), "behind it"...)
	files["members.gz"] = slices.Concat(compress(drive[:4096]), compress(drive[4096:]))

	plain := make([]byte, imageSize)
	copy(plain[3*mib:], root)
	files["mbr.raw"] = slices.Concat(mbrParts, plain[512:])
	files["gpt.raw"] = withGPT(plain, imageSize, 512, gptParts)
	files["gpt4k.raw"] = withGPT(plain, imageSize, 4096, gptParts)
	files["gpt.qcow2"] = convert(t, files["gpt.raw"], "qcow2")
	files["root.ext4"] = root
	withDrive := slices.Clone(plain)
	copy(withDrive[mib:], drive)
	fit, named := slices.Clone(gptParts), slices.Clone(gptParts)
	fit[0].size, named[0].name = int64(len(drive)), "config-2"
	files["fit.gpt"] = withGPT(withDrive, imageSize, 512, fit)
	files["named.gpt"] = withGPT(plain, imageSize, 512, named)
	withFAT := slices.Clone(plain)
	copy(withFAT[mib:], fatVolume(t, "config-2", mib))
	files["fat.gpt"] = withGPT(withFAT, imageSize, 512, gptParts)
}

// lines breaks a text into lines, as MIME does.
func lines(text []byte) []byte {
	return bytes.Join(slices.Collect(slices.Chunk(text, 76)), []byte("\r\n"))
}

// drives contains the scenarios of the sources, encodings and contents of config drives. The group images contains the
// scenarios of their partitions.
func drives() group {
	g := group{name: "drives", shared: true, publish: publishAll(buildConfigDrives)}
	g.start = scenario{
		cmdline: "ipa-image-download-connection-retries=1 ipa-image-download-connection-retry-interval=1 " +
			"ipa-disk-wait-attempts=1",
	}
	// mount of util-linux 2.42 finds only file systems whose driver is loaded or that udev has recorded. These requests
	// load the drivers.
	for _, name := range []string{"config-2.iso", "drive.fat", "drive.ext4"} {
		g.start.do = append(g.start.do, imageScenario(imageRow{
			name: "load the driver", file: "mbr.raw", format: "raw", stream: true, drive: "{configdrive " + name + "}",
		}).do...)
	}
	g.shape = shape{append: noMultipath, disks: []disk{
		{Disk: qemu.Disk{Bus: qemu.Virtio, Size: driveDiskSize, Serial: "ROOT"}},
		{Disk: qemu.Disk{Bus: qemu.SCSI, Size: driveDiskSize, Serial: "NATIVE", Sector: 4096}},
	}}
	for _, row := range slices.Concat(urlDrives(), textDrives(), contentDrives()) {
		g.scenarios = append(g.scenarios, imageScenario(row))
	}
	return g
}

// driveRow is a config drive for an image that is streamed.
func driveRow(name, file string, drive any) imageRow {
	return imageRow{name: name, file: file, format: "raw", stream: true, drive: drive}
}

// urlDrives are config drives at URLs.
func urlDrives() []imageRow {
	gate := fmt.Sprintf("http://%s:%d", hostAddress, gatePort)
	fat := driveRow("url of FAT", "gpt.raw", imageURL+"/drive.fat")
	fat.ranges = []span{{Offset: driveInGPT, Length: mib}}
	return []imageRow{
		driveRow("url", "mbr.raw", imageURL+"/config-2.iso"),
		driveRow("url of base64", "gpt.raw", imageURL+"/drive.base64"),
		driveRow("url of base64 in lines", "mbr.raw", imageURL+"/drive.lines"),
		driveRow("url not found", "mbr.raw", imageURL+"/none"),
		driveRow("url of nothing", "mbr.raw", imageURL+"/drive.empty"),
		driveRow("url of gzip", "mbr.raw", imageURL+"/drive.gz"),
		driveRow("url of base64 that is not gzip", "mbr.raw", imageURL+"/junk.base64"),
		driveRow("url of text", "mbr.raw", imageURL+"/odd.junk"),
		fat,
		driveRow("url with status 500", "mbr.raw", gate+"/500/config-2.iso"),
		driveRow("url that redirects", "mbr.raw", gate+"/redirect/config-2.iso"),
		driveRow("url without a server", "mbr.raw", fmt.Sprintf("http://%s:1/config-2.iso", hostAddress)),
		driveRow("url in upper case", "mbr.raw", fmt.Sprintf("HTTP://%s:%d/config-2.iso", hostAddress, imagePort)),
		driveRow("url of ftp", "mbr.raw", "ftp://10.0.2.2/drive"),
	}
}

// textDrives are config drives in the parameters.
func textDrives() []imageRow {
	fallback := driveRow("text in image_info", "mbr.raw", nil)
	fallback.info = object{"configdrive": "{base64 drive.gz}"}
	return []imageRow{
		driveRow("text with line breaks", "mbr.raw", "{base64 drive.gz.1}\r\n{base64 drive.gz.2}\n"),
		driveRow("text with white space", "mbr.raw", " \t{base64 drive.gz.1} \t {base64 drive.gz.2} "),
		driveRow("text with other characters", "mbr.raw", "{base64 drive.gz.1}*{base64 drive.gz.2}"),
		driveRow("text of other characters", "mbr.raw", "%%%"),
		driveRow("text without padding", "mbr.raw", "abcde"),
		driveRow("text that is not ASCII", "mbr.raw", "{base64 drive.gz}ä"),
		driveRow("text that is not gzip", "mbr.raw", "{base64 drive.junk}"),
		driveRow("text of half a drive", "mbr.raw", "{base64 cut.gz}"),
		driveRow("text with a wrong checksum", "mbr.raw", "{base64 sum.gz}"),
		driveRow("text with zeros behind", "mbr.raw", "{base64 zeros.gz}"),
		driveRow("text with more behind", "mbr.raw", "{base64 behind.gz}"),
		driveRow("text of two members", "mbr.raw", "{base64 members.gz}"),
		driveRow("empty text", "mbr.raw", ""),
		driveRow("null", "mbr.raw", nil),
		driveRow("number", "mbr.raw", 7),
		driveRow("object", "mbr.raw", object{}),
		fallback,
	}
}

// contentDrives are config drives with other contents, and images with other partitions.
func contentDrives() []imageRow {
	const iso = "{base64 drive.gz}"
	native := func(row imageRow) imageRow {
		row.disk = "NATIVE"
		return row
	}
	qcow2 := imageRow{name: "qcow2", file: "gpt.qcow2", format: "qcow2", drive: iso}
	twice := imageRow{name: "qcow2 twice", file: "gpt.qcow2", format: "qcow2", drive: iso, again: 1}
	// comparing also compares a range of the disk: the start of the partition with the drive.
	comparing := func(offset, length int64, row imageRow) imageRow {
		row.ranges = []span{{Offset: offset, Length: length}}
		return row
	}
	// With an ISO, IPA sometimes makes a FAT file system: mount uses udev's record of the partition, which can be
	// out of date.
	existing := driveRow("existing partition with FAT", "fat.gpt", "{configdrive drive.fat}")
	return []imageRow{
		comparing(driveInMBR, mib, driveRow("FAT", "mbr.raw", "{configdrive drive.fat}")),
		comparing(driveInGPT, 2*mib, driveRow("ext4", "gpt.raw", "{configdrive drive.ext4}")),
		comparing(driveInMBR, mib, driveRow("no file system", "mbr.raw", "{configdrive drive.junk}")),
		driveRow("nothing", "mbr.raw", "{configdrive drive.empty}"),
		comparing(driveInMBR, mib, driveRow("64 MiB", "mbr.raw", "{configdrive drive.64}")),
		driveRow("larger than 64 MiB", "gpt.raw", "{configdrive drive.65}"),
		driveRow("as large as its partition", "fit.gpt", iso),
		comparing(mib, mib, existing),
		driveRow("partition with its name", "named.gpt", iso),
		driveRow("image without partitions", "root.ext4", iso),
		// IPA copies these to a new FAT file system. With an ISO, it sometimes fails for the same reason.
		native(driveRow("sectors of 4096 bytes, mbr", "mbr.raw", "{configdrive drive.fat}")),
		native(driveRow("sectors of 4096 bytes, FAT", "gpt4k.raw", "{configdrive drive.fat}")),
		native(driveRow("sectors of 4096 bytes, ext4", "gpt4k.raw", "{configdrive drive.ext4}")),
		native(driveRow("sectors of 4096 bytes, no file system", "gpt4k.raw", "{configdrive drive.junk}")),
		qcow2,
		twice,
		driveRow("64 MiB, gpt", "gpt.raw", "{configdrive drive.64}"),
	}
}
