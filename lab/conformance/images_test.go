//go:build linux

package conformance

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/lab/qemu"
)

// imageSize is the size of the images of the suite.
const imageSize = 8 * mib

// The partitions of images: a FAT file system and an ext4.
var (
	gptParts = []gptPartition{
		{efiType, uuidPrefix + "02", "esp", mib, mib},
		{linuxType, uuidPrefix + "03", "root", 3 * mib, 3 * mib},
	}
	mbrParts = mbr(0x11223344, mbrPartition{7, 2048, 2048}, mbrPartition{0x83, 6144, 6144})
)

// buildImages builds the images of the suite.
func buildImages(t *testing.T, files contents) {
	t.Helper()
	testenv.Programs(t, "qemu-img")
	root := decompress(t, ext4Gzip)
	plain := make([]byte, imageSize)
	copy(plain[mib:], fatVolume(t, "ESP", mib))
	copy(plain[3*mib:], root)
	copy(plain[7*mib:], pattern("the end", 512<<10))
	files["mbr.raw"] = slices.Concat(mbrParts, plain[512:])
	files["gpt.raw"] = withGPT(plain, imageSize, 512, gptParts)
	files["gpt4k.raw"] = withGPT(plain, imageSize, 4096, gptParts)
	files["junk.raw"] = pattern("junk", imageSize)
	files["short.raw"] = files["mbr.raw"][:imageSize-100] // no whole number of sectors
	files["empty.raw"] = []byte{}
	files["root.ext4"] = root
	files["mbr.raw.gz"] = compress(files["mbr.raw"])
	files["mbr.qcow2"] = convert(t, files["mbr.raw"], "qcow2")
	files["gpt.qcow2"] = convert(t, files["gpt.raw"], "qcow2")
	files["zlib.qcow2"] = convert(t, files["gpt.raw"], "qcow2", "-c")
	files["zstd.qcow2"] = convert(t, files["gpt.raw"], "qcow2", "-c", "-o", "compression_type=zstd")
	files["v2.qcow2"] = convert(t, files["gpt.raw"], "qcow2", "-o", "compat=0.10")
	files["root.qcow2"] = convert(t, root, "qcow2")
	files["huge.qcow2"] = created(t, "-f", "qcow2", "8G")
	files["backing.qcow2"] = created(t, "-f", "qcow2", "-b", "/etc/passwd", "-F", "raw", "8M")
	files["data.qcow2"] = append([]byte{}, files["gpt.qcow2"]...)
	files["data.qcow2"][79] |= 1 << 2 // incompatible feature: external data file
	files["feature.qcow2"] = append([]byte{}, files["gpt.qcow2"]...)
	files["feature.qcow2"][72] |= 1 << 6 // an unknown incompatible feature
	files["cut.qcow2"] = files["gpt.qcow2"][:len(files["gpt.qcow2"])/2]
	files["gpt.vmdk"] = convert(t, files["gpt.raw"], "vmdk")
	files["gpt.vdi"] = convert(t, files["gpt.raw"], "vdi")
	files["gpt.vhd"] = convert(t, files["gpt.raw"], "vpc")
	files["gpt.vhdx"] = convert(t, files["gpt.raw"], "vhdx")
	files["config-2.iso"] = decompress(t, isoGzip)
	files["hybrid.iso"] = append([]byte{}, files["config-2.iso"]...)
	copy(files["hybrid.iso"], mbr(0x55667788, mbrPartition{0x83, 64, 256}))
	for _, name := range []string{"one", "many", "bsd", "other", "none", "wrong", "comment"} {
		files[name+".sums"] = []byte(files.fill(map[string]string{
			"one": "{sha256 mbr.raw}\n", "many": "{sha512 gpt.raw}  gpt.raw\n{sha256 mbr.raw} *mbr.raw\n",
			"bsd":   "SHA256 (gpt.raw) = {sha256 gpt.raw}\nSHA256 (mbr.raw) = {sha256 mbr.raw}\n",
			"other": "{sha256 gpt.raw}  gpt.raw\n", "none": "\n\n", "wrong": "{sha256 gpt.raw}\n",
			"comment": "# mbr.raw\n# {sha256 gpt.raw}  mbr.raw\n\n{sha256 mbr.raw}  mbr.raw\n",
		}[name]))
	}
}

// gone removes a key.
type gone struct{}

// imageInfo is the image_info of a file as Ironic sends it, with keys replaced.
func imageInfo(id, name, format string, stream bool, replaced object) object {
	info := object{
		"id": id, "urls": []string{imageURL + "/" + name}, "disk_format": format, "container_format": nil,
		"stream_raw_images": stream, "os_hash_algo": "sha256", "os_hash_value": "{sha256 " + name + "}",
		"node_uuid": nodeUUID,
	}
	maps.Copy(info, replaced)
	maps.DeleteFunc(info, func(_ string, value any) bool { return value == gone{} })
	return info
}

// images are the scenarios of images and config drives. All use one machine, which starts slowly.
func images() group {
	g := group{name: "images", shared: true, publish: publishAll(func(t *testing.T, files contents) {
		buildDriveImages(t, files)
		buildImages(t, files)
	})}
	g.start = scenario{
		cmdline: "ipa-image-download-connection-retries=1 ipa-image-download-connection-retry-interval=1 " +
			"ipa-disk-wait-attempts=1",
	}
	// mount of util-linux 2.42 finds only file systems whose driver is loaded or that udev has recorded. This request
	// loads the driver.
	g.start.do = imageScenario(imageRow{
		name: "load the driver", file: "mbr.raw", format: "raw", stream: true, drive: "{configdrive config-2.iso}",
	}).do
	g.shape = shape{disks: []disk{
		rootDisk(),
		{Disk: qemu.Disk{Bus: qemu.Virtio, Size: 6 * mib, Serial: "TINY"}},
		{Disk: qemu.Disk{Bus: qemu.Virtio, Size: 70 * mib, Serial: "SMALL"}},
		{Disk: qemu.Disk{Bus: qemu.SCSI, Size: 5 * gib, Serial: "NATIVE", Sector: 4096}},
		{Disk: qemu.Disk{Bus: qemu.Virtio, Size: 3 << 40, Serial: "BIG"}},
	}}
	for _, row := range slices.Concat(imageTable(), driveTable(), checksumTable(), downloadTable(), partitionTable()) {
		g.scenarios = append(g.scenarios, imageScenario(row))
	}
	return g
}

// imageRow is a scenario of an image.
type imageRow struct {
	name   string
	info   object // replaces keys of the usual image_info
	file   string
	format string
	stream bool
	disk   string // "" is ROOT
	drive  any    // configdrive
	node   object
	ranges []span // in addition to wholeImage
	uuids  bool   // also ask for the UUIDs of partitions
	again  int    // number of repetitions
	// before and prepared belong to the scenario. Without them, the function used prepares the disk.
	before   func(path string) error
	prepared string
}

// imageScenario writes an image to a disk that was used before.
func imageScenario(row imageRow) scenario {
	serial := row.disk
	if serial == "" {
		serial = "ROOT"
	}
	node := object{"properties": object{"root_device": object{"serial": serial}}}
	for key, value := range row.node {
		merged := object{}
		if usual, ok := node[key].(object); ok {
			maps.Copy(merged, usual)
		}
		maps.Copy(merged, value.(object))
		node[key] = merged
	}
	id := strings.NewReplacer(" ", "-", ",", "", ":", "", "/", "").Replace(row.name)
	info := imageInfo(id, row.file, row.format, row.stream, row.info)
	s := scenario{name: row.name, node: node, disks: []string{serial}, before: used, gpt: true}
	if row.before != nil {
		s.before, s.prepared = row.before, row.prepared
	}
	if info["image_type"] != "partition" {
		s.ranges = append(wholeImage(), row.ranges...)
	}
	s.do = []request{hidden(command("deploy.get_deploy_steps", object{"node": nodeWith(node), "ports": ports()}))}
	for range row.again + 1 {
		s.do = append(s.do, command("standby.prepare_image", object{"image_info": info, "configdrive": row.drive}))
	}
	if row.uuids {
		s.do = append(s.do, command("standby.get_partition_uuids", object{}))
	}
	return s
}

// wholeImage are the parts of a disk that an image of the suite fills, without the tables that are moved. An image of a
// partition is found by its UUID instead, see blkid.
func wholeImage() []span {
	return []span{{Offset: 0, Length: 512}, {Offset: mib, Length: imageSize - mib - 64<<10}}
}

// imageTable are images of whole disks.
func imageTable() []imageRow {
	var rows []imageRow
	add := func(row imageRow) { rows = append(rows, row) }
	file := func(name, file, format string) { add(imageRow{name: name, file: file, format: format}) }
	streamed := func(name, file string) {
		add(imageRow{name: name, file: file, format: "raw", stream: true, uuids: true})
	}
	on := func(disk, name, file, format string, stream bool) {
		add(imageRow{name: name, file: file, format: format, stream: stream, disk: disk})
	}

	streamed("raw streamed", "mbr.raw")
	streamed("gpt streamed", "gpt.raw")
	file("raw from a file", "mbr.raw", "raw")
	file("gpt from a file", "gpt.raw", "raw")
	file("gpt declared", "gpt.raw", "gpt")
	add(imageRow{name: "qcow2", file: "gpt.qcow2", format: "qcow2", stream: true, uuids: true})
	add(imageRow{name: "qcow2, disk erased since", info: object{"id": "qcow2"}, file: "gpt.qcow2", format: "qcow2"})
	file("qcow2 zlib", "zlib.qcow2", "qcow2")
	file("qcow2 zstd", "zstd.qcow2", "qcow2")
	file("qcow2 version 2", "v2.qcow2", "qcow2")
	file("qcow2 without a format", "gpt.qcow2", "")
	file("qcow2 unknown", "gpt.qcow2", "unknown")
	file("iso hybrid", "hybrid.iso", "iso")
	file("iso", "config-2.iso", "iso")
	file("mbr without a format", "mbr.raw", "")
	file("raw declared qcow2", "mbr.raw", "qcow2")
	file("gpt declared qcow2", "gpt.raw", "qcow2")
	file("qcow2 declared iso", "gpt.qcow2", "iso")
	file("qcow2 with a backing file", "backing.qcow2", "qcow2")
	file("qcow2 with a data file", "data.qcow2", "qcow2")
	file("qcow2 with an unknown feature", "feature.qcow2", "qcow2")
	file("qcow2 cut", "cut.qcow2", "qcow2")
	file("qcow2 larger than the disk", "huge.qcow2", "qcow2")
	file("vmdk", "gpt.vmdk", "vmdk")
	file("vdi", "gpt.vdi", "vdi")
	file("vhd", "gpt.vhd", "vhd")
	file("vhdx", "gpt.vhdx", "vhdx")
	file("unknown format", "mbr.raw", "floppy")
	streamed("qcow2 declared raw", "gpt.qcow2")
	streamed("junk", "junk.raw")
	streamed("empty", "empty.raw")
	streamed("gzip declared raw", "mbr.raw.gz")
	streamed("not whole sectors", "short.raw")
	on("TINY", "larger than the disk", "mbr.raw", "raw", true)
	on("TINY", "larger than the disk from a file", "mbr.raw", "raw", false)
	on("TINY", "qcow2 larger than a small disk", "gpt.qcow2", "qcow2", false)
	on("NATIVE", "gpt of 4096 bytes", "gpt4k.raw", "raw", true)
	on("NATIVE", "gpt of 512 bytes on 4096", "gpt.raw", "raw", true)
	on("ROOT", "gpt of 4096 bytes on 512", "gpt4k.raw", "raw", true)
	add(imageRow{name: "twice", file: "gpt.qcow2", format: "qcow2", again: 1})
	return rows
}

// rootUUID and rootSize are the UUID and the size of the file system in testdata/ext4.img.gz.
const (
	rootUUID = "6a6e7a52-5d0e-4b1c-9d0c-1c6d0c2b7e11"
	rootSize = 2 * mib
)
