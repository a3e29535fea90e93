package nvidia

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ironroot/agent/fault"
	"ironroot/agent/hardware"
	"ironroot/agent/status"
	"ironroot/storage/image/checksum"
	"ironroot/storage/image/fetch"
)

const imagesArgument = "images"

// maxImage limits the size of a firmware image, in bytes. The flash of a card has 16 to 64 MiB.
const maxImage = 128 << 20

// checksumTypes are the values of checksumType.
var checksumTypes = []string{"md5", "sha256", "sha512"}

// image is a firmware image, as an entry of the argument images describes it.
type image struct {
	URL          string `json:"url"`
	Checksum     string `json:"checksum"`
	ChecksumType string `json:"checksumType"`
	PSID         string `json:"componentFlavor"`
	Version      string `json:"version"`
}

// parseImages parses and validates the argument images. The result is by PSID.
func parseImages(call hardware.Call, md5Enabled bool) (map[string]image, error) {
	byPSID := map[string]image{}
	err := eachOf(call, imagesArgument, fault.InvalidFirmwareImageConfig, func(i image, name string) error {
		if err := i.check(md5Enabled); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if _, found := byPSID[i.PSID]; found {
			return fault.DuplicateComponentFlavor("%s: Duplicate componentFlavor %s", name, i.PSID)
		}
		byPSID[i.PSID] = i
		return nil
	})
	return byPSID, err
}

// check validates the description. Its errors do not contain the URL, which can have a password.
func (i image) check(md5Enabled bool) error {
	if slices.Contains([]string{i.URL, i.Checksum, i.ChecksumType, i.PSID, i.Version}, "") {
		return fault.InvalidFirmwareImageConfig("please provide the following parameters: " +
			"url, checksum, checksumType, componentFlavor, version")
	}
	if !slices.Contains(checksumTypes, i.ChecksumType) {
		return fault.InvalidFirmwareImageConfig("checksumType %q is not supported, want one of %s",
			i.ChecksumType, strings.Join(checksumTypes, ", "))
	}
	if i.ChecksumType == "md5" && !md5Enabled {
		return fault.InvalidFirmwareImageConfig("checksumType \"md5\" is disabled, want sha256 or sha512; " +
			"md5_enabled allows it")
	}
	if _, err := i.sum().Hash(); err != nil {
		return fault.InvalidFirmwareImageConfig("%w", err)
	}
	address, err := url.Parse(i.URL)
	if err != nil {
		return fault.InvalidFirmwareImageConfig("url is not valid")
	}
	switch address.Scheme {
	case "file":
		if address.Host != "" && address.Host != "localhost" || address.Path == "" {
			return fault.InvalidFirmwareImageConfig("url of a file: want file:///PATH")
		}
	case "http", "https":
		if err := fetch.CheckURL(i.URL); err != nil {
			return fault.InvalidFirmwareImageConfig("%w", err)
		}
	default:
		return fault.InvalidURLScheme("Firmware URL scheme %s is not supported. The supported firmware URL schemes "+
			"are (http://, https://, file://)", address.Scheme)
	}
	return nil
}

// sum returns the checksum.
func (i image) sum() checksum.Sum { return checksum.Sum{Algorithm: i.ChecksumType, Value: i.Checksum} }

// update is a card for whose PSID there is an image.
type update struct {
	function
	firmware
	image image
}

// updateResult is the result for a card, or for an image without a card, which has only PSID and Note.
type updateResult struct {
	Device   string `json:"device,omitempty"`
	PSID     string `json:"psid"`
	Previous string `json:"previous_version,omitempty"`
	Version  string `json:"version,omitempty"`         // from the next start of the card on, as mstflint reports it
	Running  string `json:"running_version,omitempty"` // until then
	Updated  bool   `json:"updated"`
	Note     string `json:"note,omitempty"`
}

// updateImages is the step update_nvidia_nic_firmware_image. All images are fetched and verified before the first card
// is written to.
func (m *Manager) updateImages(ctx context.Context, call hardware.Call) (any, error) {
	images, err := parseImages(call, m.o.Config.Get().MD5Enabled)
	if err != nil {
		return nil, err
	}
	r, err := m.start(ctx, "firmware update")
	if err != nil {
		return nil, err
	}
	defer r.tracker.End()
	updates, err := r.updates(ctx, images)
	if err != nil {
		return nil, err
	}
	files := map[string]*os.File{}
	defer func() {
		for _, f := range files {
			_ = f.Close() // it is in memory
		}
	}()
	for _, u := range updates {
		if u.version == u.image.Version || files[u.psid] != nil {
			continue
		}
		if files[u.psid], err = r.fetch(ctx, u.image); err != nil {
			delete(files, u.psid)
			return nil, fmt.Errorf("firmware image %s: %w", fetch.RedactURL(u.image.URL), err)
		}
	}
	results := []updateResult{}
	for _, u := range updates {
		result, err := r.update(ctx, u, files[u.psid])
		if err != nil {
			return nil, err
		}
		results = append(results, result)
	}
	for _, psid := range slices.Sorted(maps.Keys(images)) {
		if !slices.ContainsFunc(updates, func(u update) bool { return u.psid == psid }) {
			r.o.Log.Warn("no network card for firmware image", "psid", psid)
			results = append(results, updateResult{PSID: psid, Note: "no network card with this componentFlavor"})
		}
	}
	return results, nil
}

// updates returns the cards for which there are images, each with its first function.
func (r *run) updates(ctx context.Context, images map[string]image) ([]update, error) {
	seen := map[string]bool{}
	var list []update
	for _, f := range r.functions {
		if seen[f.card()] {
			continue
		}
		seen[f.card()] = true
		r.tracker.SetPhase("querying "+f.address, 0, 0, 0)
		current, err := r.firmwareOf(ctx, f)
		if err != nil {
			return nil, err
		}
		if i, ok := images[current.psid]; ok {
			list = append(list, update{f, current, i})
			continue
		}
		r.o.Log.Info("no firmware image for network card", "device", f.address, "psid", current.psid)
	}
	return list, nil
}

// update writes an image to a card that has another version, and verifies what the card reports then. A card whose
// latest firmware does not run yet is reset first: it has space for two images, and would lose the one that runs.
//
// The card is queried again first: one card can have several addresses, by one of which it was just updated.
func (r *run) update(ctx context.Context, u update, file *os.File) (updateResult, error) {
	before := u.firmware
	var err error
	if u.firmware, err = r.firmwareOf(ctx, u.function); err != nil {
		return updateResult{}, err
	}
	result := updateResult{Device: u.address, PSID: u.psid, Previous: u.version, Version: u.version, Running: u.version}
	if u.running != "" {
		result.Running = u.running
	}
	if u.psid == before.psid && u.version == u.image.Version {
		r.o.Log.Info("network card has the firmware", "device", u.address, "psid", u.psid, "version", u.version)
		return result, nil
	}
	if u.psid != before.psid || file == nil { // without a file, it had the wanted version
		return result, fmt.Errorf("network card %s changed during the step: got firmware %s (PSID %s), want %s (%s)",
			u.address, u.version, u.psid, before.version, before.psid)
	}
	if ctx.Err() != nil {
		return result, context.Cause(ctx)
	}
	if u.running != "" {
		if err := r.reset(u.function); err != nil {
			return result, err
		}
		current, err := r.firmwareOf(ctx, u.function)
		if err != nil {
			return result, err
		}
		if current.running != "" {
			return result, fmt.Errorf("network card %s: got running firmware %s after its reset, want %s", u.address,
				current.running, current.version)
		}
	}
	r.tracker.SetPhase("writing "+u.address, 0, 0, 0)
	if err := r.write(u.function, file, mstflint, "-d", u.address, "-i", inputPath, "-y", "burn"); err != nil {
		return result, fmt.Errorf("write firmware %s to network card %s: %w", u.image.Version, u.address, err)
	}
	// The card must be in a known state, even if the step is cancelled meanwhile.
	got, err := r.firmwareOf(context.WithoutCancel(ctx), u.function)
	switch {
	case err != nil:
		return result, fmt.Errorf("verify firmware: %w", err)
	case got.version != u.image.Version:
		return result, fmt.Errorf("network card %s: got firmware %s after writing, want %s", u.address, got.version,
			u.image.Version)
	case got.psid != u.psid:
		return result, fmt.Errorf("network card %s: got PSID %s after writing, want %s", u.address, got.psid, u.psid)
	}
	result.Version, result.Running, result.Updated = got.version, got.version, true
	if got.running != "" {
		result.Running = got.running
	}
	r.o.Log.Info("firmware of network card updated", "device", u.address, "psid", u.psid, "previous", u.version,
		"version", got.version, "running", result.Running)
	return result, nil
}

// inputPath is the name by which mstflint opens its standard input. It reads the size of an image before the content,
// so it cannot read from a pipe; this opens the file in memory anew.
const inputPath = "/proc/self/fd/0"

// fetch returns an image as a file in memory whose checksum, PSID and version are as described, and which cannot be
// changed any more.
func (r *run) fetch(ctx context.Context, i image) (f *os.File, err error) {
	f, err = memoryFile()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = f.Close() // it is in memory
		}
	}()
	if err := r.copyImage(ctx, f, i); err != nil {
		return nil, err
	}
	if err := seal(f); err != nil {
		return nil, err
	}
	out, err := r.tools.Run(ctx, f, queryTimeout, mstflint, "-i", inputPath, "query")
	if err != nil {
		return nil, err
	}
	got, err := parseFirmware(string(out))
	switch {
	case err != nil:
		return nil, err
	case got.psid != i.PSID:
		return nil, fault.MismatchComponentFlavor("The provided psid %s does not match the image psid %s",
			i.PSID, got.psid)
	case got.version != i.Version:
		return nil, fault.MismatchFWVersion("The provided firmware version %s does not match image firmware version %s",
			i.Version, got.version)
	}
	return f, nil
}

// copyImage copies an image to a file in memory, and verifies its checksum.
func (r *run) copyImage(ctx context.Context, f *os.File, i image) error {
	limit, err := r.imageLimit()
	if err != nil {
		return err
	}
	body, err := r.openImage(ctx, i)
	if err != nil {
		return err
	}
	defer body.Close() //nolint:errcheck // only read
	sum, err := i.sum().Hash()
	if err != nil {
		return err
	}
	shown := &counter{r.tracker, "fetching " + i.PSID, 0}
	size, err := io.Copy(io.MultiWriter(f, sum, shown), io.LimitReader(body, limit+1))
	if err != nil {
		return err
	}
	if size > limit {
		return fmt.Errorf("image is larger than %d bytes, the limit with the free memory of this machine", limit)
	}
	err = i.sum().Verify(sum, i.URL)
	var mismatch *checksum.MismatchError
	if errors.As(err, &mismatch) {
		return fault.MismatchChecksum("Mismatch provided checksum %s for image %s: got %s", mismatch.Want,
			fetch.RedactURL(i.URL), mismatch.Got)
	}
	return err
}

// imageLimit returns the size that an image may have, in bytes: at most half of the free memory.
func (r *run) imageLimit() (int64, error) {
	free, err := r.o.System.AvailableMemory()
	if err != nil {
		return 0, err
	}
	return min(maxImage, free/2), nil
}

// openImage opens the file at the URL of an image.
func (r *run) openImage(ctx context.Context, i image) (io.ReadCloser, error) {
	address, err := url.Parse(i.URL)
	if err != nil {
		return nil, errors.New("url is not valid")
	}
	if address.Scheme != "file" {
		return r.o.Images.Open(ctx, i.URL, true)
	}
	f, err := os.OpenFile(address.Path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a named pipe would have to wait for a writer
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "read", Path: address.Path, Err: errors.New("not a regular file")}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// counter shows how many bytes were written to it.
type counter struct {
	tracker status.Tracker
	phase   string
	done    int64
}

// Write implements [io.Writer].
func (c *counter) Write(p []byte) (int, error) {
	c.done += int64(len(p))
	c.tracker.SetPhase(c.phase, 0, c.done, 0)
	return len(p), nil
}
