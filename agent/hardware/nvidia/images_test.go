package nvidia

import (
	"context"
	"crypto/md5"
	"crypto/sha256"
	"crypto/sha512"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/agent/config"
	"ironroot/internal/test/testenv"
)

const imageStep = "update_nvidia_nic_firmware_image"

// content returns a firmware image, as the fake mstflint reads it.
func content(psid, version string) string { return psid + " " + version }

// entry returns an entry of the argument images for an image with this content, with changed fields. A field that is
// changed to null is absent.
func entry(url, psid, version string, changed map[string]string) string {
	fields := map[string]string{
		"url": url, "checksumType": "sha256", "componentFlavor": psid, "version": version,
		"checksum": fmt.Sprintf("%x", sha256.Sum256([]byte(content(psid, version)))),
	}
	maps.Copy(fields, changed)
	var list []string
	for name, value := range fields {
		if value != "null" {
			list = append(list, fmt.Sprintf("'%s': '%s'", name, value))
		}
	}
	return "{" + strings.Join(list, ", ") + "}"
}

func images(entries ...string) string { return "{'images': [" + strings.Join(entries, ", ") + "]}" }

// Cards whose firmware has another version are updated, once for all functions. Each image is fetched once, and only if
// a card needs it.
//
// Parity: F8 (firmware image)
func TestUpdateImages(t *testing.T) {
	testenv.Linux(t, "files in memory")
	r := newRig(t, append(devices, "0000:86:00.0 15b3:101d 0200", "0000:af:00.0 15b3:1021 0200")...)
	r.Cards["0000:3b:00"] = &card{PSID: "MT_0000000359", Version: "22.36.1010"}
	r.Cards["0000:5e:00"] = &card{PSID: "MT_0000000222", Version: "20.36.1010"}
	r.Cards["0000:86:00"] = &card{PSID: "MT_0000000359", Version: "22.41.1000"}
	r.Cards["0000:af:00"] = &card{PSID: "MT_0000000838", Version: "28.39.1002"}
	const ethernet, infiniband = "http://h/fw22.bin?sig=secret", "https://h/fw20.bin"
	r.files[ethernet] = content("MT_0000000359", "22.39.1002")
	sums := map[string]string{
		"checksumType": "sha512",
		"checksum":     fmt.Sprintf("%X", sha512.Sum512([]byte(r.files[ethernet]))),
	}
	got, err := r.run(t, imageStep, images(
		entry(ethernet, "MT_0000000359", "22.39.1002", sums), entry(infiniband, "MT_0000000222", "20.36.1010", nil),
		entry("http://h/absent", "MT_0000000999", "1.2.3", nil),
	))
	if err != nil {
		t.Fatal(err)
	}
	const want = "[" +
		"{'device':'0000:3b:00.0','psid':'MT_0000000359','previous_version':'22.36.1010','version':'22.39.1002'," +
		"'running_version':'22.36.1010','updated':true}," +
		"{'device':'0000:5e:00.0','psid':'MT_0000000222','previous_version':'20.36.1010','version':'20.36.1010'," +
		"'running_version':'20.36.1010','updated':false}," +
		"{'device':'0000:86:00.0','psid':'MT_0000000359','previous_version':'22.41.1000','version':'22.39.1002'," +
		"'running_version':'22.41.1000','updated':true}," +
		"{'psid':'MT_0000000999','updated':false,'note':'no network card with this componentFlavor'}]"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	r.checkCalls(t, "mstflint -d 0000:3b:00.0 -i /proc/self/fd/0 -y burn",
		"mstflint -d 0000:86:00.0 -i /proc/self/fd/0 -y burn")
	if diff := cmp.Diff([]string{ethernet}, r.opened); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	for _, want := range []string{
		"firmware update of network cards", "fetching MT_0000000359: 24 bytes", "writing 0000:86:00.0", "end",
	} {
		if !strings.Contains(strings.Join(r.phases, "\n")+"\n", want+"\n") {
			t.Errorf("phases lack %q:\n%s", want, strings.Join(r.phases, "\n"))
		}
	}
	log := r.log.String()
	if !strings.Contains(log, "no firmware image for network card") || strings.Contains(log, "sig=") ||
		!strings.Contains(log, `level=WARN msg="no network card for firmware image" psid=MT_0000000999`) {
		t.Errorf("got log\n%s", log)
	}
}

// A card with two addresses is written to once, and has its latest firmware from then on.
func TestSharedFlash(t *testing.T) {
	testenv.Linux(t, "files in memory")
	r := newRig(t, "0000:3b:00.0 15b3:101d 0200", "0000:5e:00.0 15b3:101d 0200")
	r.files["http://h/f"] = content("MT_0000000359", "22.39.1002")
	r.Cards["0000:3b:00"] = &card{PSID: "MT_0000000359", Version: "22.36.1010"}
	r.Cards["0000:5e:00"] = r.Cards["0000:3b:00"]
	got, err := r.run(t, imageStep, images(entry("http://h/f", "MT_0000000359", "22.39.1002", nil)))
	if err != nil {
		t.Fatal(err)
	}
	const want = "[" +
		"{'device':'0000:3b:00.0','psid':'MT_0000000359','previous_version':'22.36.1010','version':'22.39.1002'," +
		"'running_version':'22.36.1010','updated':true}," +
		"{'device':'0000:5e:00.0','psid':'MT_0000000359','previous_version':'22.39.1002','version':'22.39.1002'," +
		"'running_version':'22.36.1010','updated':false}]"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	r.checkCalls(t, "mstflint -d 0000:3b:00.0 -i /proc/self/fd/0 -y burn")
}

// A card that has another PSID, or lost the wanted firmware, since the start of the step is not written to.
func TestCardChanged(t *testing.T) {
	testenv.Linux(t, "files in memory")
	for _, test := range []struct{ second, changed card }{
		{card{PSID: "MT_0000000359", Version: "22.36.1010"}, card{PSID: "MT_0000000444", Version: "20.1.1"}},
		{card{PSID: "MT_0000000222", Version: "20.39.1002"}, card{PSID: "MT_0000000444", Version: "20.1.1"}},
		{card{PSID: "MT_0000000222", Version: "20.39.1002"}, card{PSID: "MT_0000000444", Version: "20.39.1002"}},
	} {
		second, changed := test.second, test.changed
		r := newRig(t, "0000:3b:00.0 15b3:101d 0200", "0000:5e:00.0 15b3:101b 0200")
		r.files["http://h/f"] = content("MT_0000000359", "22.39.1002")
		r.Cards["0000:3b:00"] = &card{PSID: "MT_0000000359", Version: "22.36.1010"}
		r.Cards["0000:5e:00"] = &second
		r.onWrite = func() { r.Cards["0000:5e:00"] = &changed }
		_, err := r.run(t, imageStep, images(entry("http://h/f", "MT_0000000359", "22.39.1002", nil),
			entry("http://h/g", "MT_0000000222", "20.39.1002", nil)))
		checkFault(t, err, "CommandExecutionError", "network card 0000:5e:00.0 changed during the step: "+
			"got firmware "+changed.Version+" (PSID MT_0000000444), want "+second.Version+" ("+second.PSID+")")
		r.checkCalls(t, "mstflint -d 0000:3b:00.0 -i /proc/self/fd/0 -y burn")
	}
}

// Images come from files, too, which are not changed. MD5 is an algorithm only if it is enabled.
//
// Parity: F8 (image from a file)
func TestImageFromFile(t *testing.T) {
	testenv.Linux(t, "files in memory")
	path := filepath.Join(t.TempDir(), "fw 22.bin")
	text := content("MT_0000000359", "22.39.1002")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, devices[0])
	r.options.Config.Update(func(c *config.Config) { c.MD5Enabled = true })
	r.Cards["0000:3b:00"] = &card{PSID: "MT_0000000359", Version: "22.36.1010"}
	sum := map[string]string{"checksumType": "md5", "checksum": fmt.Sprintf("%x", md5.Sum([]byte(text)))}
	url := "file://" + strings.ReplaceAll(path, " ", "%20")
	if _, err := r.run(t, imageStep, images(entry(url, "MT_0000000359", "22.39.1002", sum))); err != nil {
		t.Fatal(err)
	}
	r.checkCalls(t, "mstflint -d 0000:3b:00.0 -i /proc/self/fd/0 -y burn")
	if got, err := os.ReadFile(path); err != nil || string(got) != text {
		t.Errorf("got %q and %v, want the file unchanged", got, err)
	}
}

// A card whose latest firmware does not run yet is reset before it is written to. If that is not possible, it is not
// written to.
//
// Parity: F8 (pending firmware)
func TestPendingImage(t *testing.T) {
	testenv.Linux(t, "files in memory")
	argument := images(entry("http://h/f", "MT_0000000359", "22.39.1002", nil))
	const reset = "mstfwreset -d 0000:3b:00.0 -y --sync 1 reset"
	newPending := func(version string) *rig {
		r := newRig(t, devices...)
		r.files["http://h/f"] = content("MT_0000000359", "22.39.1002")
		r.Cards["0000:3b:00"] = &card{PSID: "MT_0000000359", Version: version, Running: "22.31.1014"}
		r.Cards["0000:5e:00"] = &card{PSID: "MT_0000000222", Version: "20.36.1010"}
		return r
	}
	r := newPending("22.36.1010")
	if _, err := r.run(t, imageStep, argument); err != nil {
		t.Fatal(err)
	}
	r.checkCalls(t, reset, "mstflint -d 0000:3b:00.0 -i /proc/self/fd/0 -y burn")

	r = newPending("22.36.1010")
	r.Fail = map[string]string{"mstfwreset": "-E- The device does not support reset"}
	_, err := r.run(t, imageStep, argument)
	checkFault(t, err, "CommandExecutionError",
		"reset network card 0000:3b:00.0: -E- The device does not support reset")
	r.checkCalls(t, reset)

	r = newPending("22.36.1010")
	r.NoEffect = true
	_, err = r.run(t, imageStep, argument)
	checkFault(t, err, "CommandExecutionError",
		"network card 0000:3b:00.0: got running firmware 22.31.1014 after its reset, want 22.36.1010")
	r.checkCalls(t, reset)

	r = newPending("22.39.1002") // the wanted firmware runs from the next start on
	got, err := r.run(t, imageStep, argument)
	const want = "'version':'22.39.1002','running_version':'22.31.1014','updated':false}]"
	if err != nil || !strings.HasSuffix(got, want) {
		t.Errorf("got %s and %v, want %s", got, err, want)
	}
	r.checkCalls(t)
}

// Invalid arguments and images that do not match their description are refused before a card is written to.
//
// Parity: F8 (PSID, version, checksum and duplicate errors), U2 (firmware)
func TestImageErrors(t *testing.T) {
	testenv.Linux(t, "files in memory")
	const url = "http://user:hunter2@h/f"
	good := entry(url, "MT_0000000359", "22.39.1002", nil)
	with := func(name, value string) string {
		return images(entry(url, "MT_0000000359", "22.39.1002", map[string]string{name: value}))
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	const invalid = "InvalidFirmwareImageConfig"
	for _, tt := range []struct{ argument, content, kind, details string }{
		{"{}", "", invalid, "the argument images must be a list"},
		{"{'images': null}", "", invalid, "the argument images must be a list"},
		{"{'images': {'url': 'x'}}", "", invalid, "the argument images must be a list"},
		{"{'images': [], 'image': 1}", "", "InvalidCommandParamsError", "the step has no argument 'image'"},
		{images("7"), "", invalid, "images[0]: json: cannot unmarshal number"},
		{images(good, "{'url': 'x'}"), "", invalid, "images[1]: please provide the following parameters: url, "},
		{with("version", "null"), "", invalid, "images[0]: please provide the following parameters: "},
		{with("componentFlavor", ""), "", invalid, "images[0]: please provide the following parameters: "},
		{with("psid", "MT_1"), "", invalid, `images[0]: json: unknown field "psid"`},
		{with("checksumType", "sha1"), "", invalid, `images[0]: checksumType "sha1" is not supported, want one of`},
		{with("checksumType", "md5"), "", invalid, `images[0]: checksumType "md5" is disabled, want sha256 or sha512`},
		{with("checksum", "abc"), "", invalid, "images[0]: checksum: got 3 characters, want 64 hexadecimal digits"},
		{with("url", "ftp://h/f"), "", "InvalidURLScheme", "images[0]: Firmware URL scheme ftp is not supported"},
		{with("url", "f"), "", "InvalidURLScheme", "images[0]: Firmware URL scheme  is not supported"},
		{with("url", "http:///f"), "", invalid, "images[0]: "},
		{with("url", "http://user:hunter2@h/%zz"), "", invalid, "images[0]: url is not valid"},
		{with("url", "file://server/f"), "", invalid, "images[0]: url of a file: want file:///PATH"},
		{images(good, good), "", "DuplicateComponentFlavor", "images[1]: Duplicate componentFlavor MT_0000000359"},
		{
			images(good), content("MT_0000000359", "22.39.1003"), "MismatchChecksumError",
			"firmware image http://h/f: Mismatch provided checksum ",
		},
		{
			images(sumOf(url, "MT_0000000360 22.39.1002")), "MT_0000000360 22.39.1002", "MismatchComponentFlavor",
			"The provided psid MT_0000000359 does not match the image psid MT_0000000360",
		},
		{
			images(sumOf(url, "MT_0000000359 22.39.1003")), "MT_0000000359 22.39.1003", "MismatchFWVersion",
			"The provided firmware version 22.39.1002 does not match image firmware version 22.39.1003",
		},
		{images(sumOf(url, "garbage")), "garbage", "CommandExecutionError", "No valid image found"},
		{images(good), "", "CommandExecutionError", "firmware image http://h/f: status 404"},
		{with("url", "file://"+pipe), "", "CommandExecutionError", "read " + pipe + ": not a regular file"},
		{with("url", "file:///absent"), "", "CommandExecutionError", "open /absent: no such file or directory"},
		{
			images(good), strings.Repeat("x", 1<<20+1), "CommandExecutionError",
			"firmware image http://h/f: image is larger than 1048576 bytes, the limit with the free memory",
		},
	} {
		r := newRig(t, devices[0])
		r.Cards["0000:3b:00"] = &card{PSID: "MT_0000000359", Version: "22.36.1010"}
		if tt.content != "" {
			r.files[url] = tt.content
		}
		meminfo := r.options.System.Proc("meminfo")
		if err := os.WriteFile(meminfo, []byte("MemAvailable: 2048 kB\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := r.run(t, imageStep, tt.argument)
		checkFault(t, err, tt.kind, tt.details)
		r.checkCalls(t)
		if err != nil && strings.Contains(err.Error()+r.log.String(), "hunter2") {
			t.Errorf("the password appears in %v", err)
		}
	}
}

// sumOf returns an entry with the checksum of a content, whatever it is.
func sumOf(url, content string) string {
	return entry(url, "MT_0000000359", "22.39.1002", map[string]string{
		"checksum": fmt.Sprintf("%x", sha256.Sum256([]byte(content))),
	})
}

// If the second of two images is not valid, the first is not written either. A card that cannot be queried fails the
// step.
func TestImagesAreVerifiedFirst(t *testing.T) {
	testenv.Linux(t, "files in memory")
	r := newRig(t, devices...)
	r.Cards["0000:3b:00"] = &card{PSID: "MT_0000000359", Version: "22.36.1010"}
	r.Cards["0000:5e:00"] = &card{PSID: "MT_0000000222", Version: "20.36.1010"}
	r.files["http://h/1"] = content("MT_0000000359", "22.39.1002")
	r.files["http://h/2"] = "damaged"
	argument := images(entry("http://h/1", "MT_0000000359", "22.39.1002", nil),
		entry("http://h/2", "MT_0000000222", "20.39.1002", nil))
	_, err := r.run(t, imageStep, argument)
	checkFault(t, err, "MismatchChecksumError", "http://h/2")
	r.checkCalls(t)

	r.Fail = map[string]string{"mstflint -d 0000:5e:00.0": "-E- Cannot open Device: 0000:5e:00.0"}
	_, err = r.run(t, imageStep, argument)
	checkFault(t, err, "CommandExecutionError", "network card 0000:5e:00.0: -E- Cannot open Device")
	r.checkCalls(t)
}

// The step fails if a card does not report the new firmware after it was written, even if the tool succeeded, and names
// the reason of a tool that failed.
//
// Parity: F8 (verification)
func TestImageNotWritten(t *testing.T) {
	testenv.Linux(t, "files in memory")
	argument := images(entry("http://h/f", "MT_0000000359", "22.39.1002", nil))
	for details, change := range map[string]func(*rig){
		"network card 0000:3b:00.0: got firmware 22.36.1010 after writing, want 22.39.1002": func(r *rig) {
			r.NoEffect = true
		},
		"write firmware 22.39.1002 to network card 0000:3b:00.0: -E- Burning FS4 image failed": func(r *rig) {
			r.Fail = map[string]string{"mstflint -d 0000:3b:00.0 -i": "-E- Burning FS4 image failed"}
		},
	} {
		r := newRig(t, devices[0])
		r.Cards["0000:3b:00"] = &card{PSID: "MT_0000000359", Version: "22.36.1010"}
		r.files["http://h/f"] = content("MT_0000000359", "22.39.1002")
		change(r)
		_, err := r.run(t, imageStep, argument)
		checkFault(t, err, "CommandExecutionError", details)
	}
}

// The image that mstflint gets cannot be changed any more.
func TestImageIsSealed(t *testing.T) {
	testenv.Linux(t, "files in memory")
	f, err := memoryFile()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("firmware"); err != nil {
		t.Fatal(err)
	}
	if err := seal(f); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("x"), 0); err == nil {
		t.Error("the sealed file was written to")
	}
}

// A step that is cancelled while it writes to a card verifies that card, and writes to no other.
func TestImageStepCancelled(t *testing.T) {
	testenv.Linux(t, "files in memory")
	r := newRig(t, devices...)
	r.Cards["0000:3b:00"] = &card{PSID: "MT_0000000359", Version: "22.36.1010"}
	r.Cards["0000:5e:00"] = &card{PSID: "MT_0000000359", Version: "22.36.1010"}
	r.files["http://h/f"] = content("MT_0000000359", "22.39.1002")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r.onWrite = cancel
	_, err := r.runContext(t, ctx, imageStep, images(entry("http://h/f", "MT_0000000359", "22.39.1002", nil)))
	checkFault(t, err, "CommandExecutionError", "context canceled")
	r.checkCalls(t, "mstflint -d 0000:3b:00.0 -i /proc/self/fd/0 -y burn")
	const want = `msg="firmware of network card updated" device=0000:3b:00.0`
	if log := r.log.String(); !strings.Contains(log, want) {
		t.Errorf("log lacks %q:\n%s", want, log)
	}
}
