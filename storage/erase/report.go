package erase

import (
	"errors"
	"fmt"
	"strings"

	"ironroot/storage/block"
	"ironroot/storage/erase/evidence"
)

// Technique names how a device was erased.
type Technique string

// The techniques, from the strongest to the weakest.
const (
	NVMeCrypto Technique = "nvme-format-crypto" // the drive deleted the key of the data
	NVMeUser   Technique = "nvme-format-user"   // the drive erased its data

	NVMeSanitizeBlock     Technique = "nvme-sanitize-block"
	NVMeSanitizeCrypto    Technique = "nvme-sanitize-crypto"
	NVMeSanitizeOverwrite Technique = "nvme-sanitize-overwrite"

	ATAEnhanced Technique = "ata-secure-erase-enhanced"
	ATAErase    Technique = "ata-secure-erase"

	ATASanitizeBlock     Technique = "ata-sanitize-block"
	ATASanitizeCrypto    Technique = "ata-sanitize-crypto"
	ATASanitizeOverwrite Technique = "ata-sanitize-overwrite"

	SCSISanitizeBlock     Technique = "scsi-sanitize-block"
	SCSISanitizeCrypto    Technique = "scsi-sanitize-crypto"
	SCSISanitizeOverwrite Technique = "scsi-sanitize-overwrite"

	Overwrite    Technique = "overwrite" // every byte of the size that the kernel reports was written
	Discard      Technique = "discard"   // every byte reads as zero, and the medium can hold the data
	MetadataOnly Technique = "metadata"
)

// Report describes the erase of a device: what was done, what the drive reported, what was read back, and what was not
// reached. It is the snapshot of a [Recorder].
type Report struct {
	Technique Technique // "" until the erase has succeeded
	// Fallback is why a device was overwritten or discarded that has an erase of its own: an ATA drive, a SCSI disk, or
	// an NVMe drive whose sanitize failed or that kept data. Otherwise it is nil.
	Fallback error
	Passes   []evidence.Pass // of an overwrite
	// InsteadOfZeros means that the last pass was random data although zeros were requested: it is not known whether
	// the drive is locked.
	InsteadOfZeros bool
	Reported       []evidence.Statement
	Samples        *evidence.Samples
	ReadBack       *evidence.ReadBack

	Hidden       *evidence.Hidden // sectors of an ATA drive; nil if none are known to be hidden
	Namespaces   Namespaces       // of an NVMe drive that were not erased
	Restrictions []string         // see [Recorder.Restrict]

	Firmware string // revision that the drive reported to the erase, "" if it was not asked
	// NoRotationRate means that an ATA drive reported no rotation rate. The kernel takes such drives for hard disks,
	// and old SSDs are among them.
	NoRotationRate bool
}

// Namespaces describes the namespaces of an NVM subsystem that the erase of one of them does not reach.
type Namespaces struct {
	Attached   []uint32 // to the controller
	Unattached []uint32 // to the controller
	Shared     bool     // other controllers may reach the subsystem or the namespace
	Listed     bool     // Unattached was read; controllers without namespace management have no such list
	Unknown    error    // why the other fields are incomplete
}

// String returns the technique, followed by the limits of the erase: why the device's own erase was not used, and what
// was not erased.
func (r Report) String() string {
	texts := []string{string(r.Technique)}
	for _, limit := range r.limits() {
		texts = append(texts, limit.Text)
	}
	return strings.Join(texts, "; ")
}

// MarshalText implements [encoding.TextMarshaler].
func (r Report) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// limits returns the limits of the erase of the device.
func (r Report) limits() (limits []evidence.Limit) {
	add := func(kind evidence.LimitKind, texts ...string) {
		for _, text := range texts {
			limits = append(limits, evidence.Limit{Kind: kind, Text: text})
		}
	}
	if r.Fallback != nil {
		add(evidence.LimitFallback, "secure erase failed: "+strings.ReplaceAll(r.Fallback.Error(), "\n", "; "))
	}
	add(evidence.LimitHidden, hiddenTexts(r.Technique, r.Hidden)...)
	if text := r.Namespaces.notErased(); text != "" {
		add(evidence.LimitNamespaces, text)
	}
	add(evidence.LimitPart, r.Restrictions...)
	return limits
}

// Overwritten describes the passes of an overwrite, and what the read-back of the last one shows. It is "" if no pass
// was read back.
func (r Report) Overwritten() string {
	if len(r.Passes) == 0 || r.ReadBack == nil {
		return ""
	}
	last, shown := "zeros", "all zeros, which a device that ignores writes can return, too"
	if r.Passes[len(r.Passes)-1].Pattern == evidence.PatternRandom {
		last, shown = "random data", "all as written, which proves that the device stores what is written"
	}
	if r.InsteadOfZeros {
		last += " instead of zeros, because it is not known whether the drive is locked"
	}
	if !r.ReadBack.Direct {
		shown = "through the kernel's cache, which does not show what the device stores"
	}
	return fmt.Sprintf("passes: %d, the last of %s; read back: %d of %d bytes, %s", len(r.Passes), last,
		r.ReadBack.Read, r.ReadBack.Size, shown)
}

// Disk returns the identity of the disk, completed by what it reported to the erase.
func (r Report) Disk(d evidence.Disk) evidence.Disk {
	if r.Firmware != "" {
		d.Firmware = r.Firmware
	}
	d.Rotational = d.Rotational && !r.NoRotationRate
	return d
}

// Target returns the evidence of the device, without its path, times and error. Without a technique, it contains what
// was done and reported, and no limits.
func (r Report) Target() evidence.Target {
	t := evidence.Target{
		Technique: string(r.Technique), Passes: r.Passes, Reported: r.Reported, Samples: r.Samples,
		ReadBack: r.ReadBack, Hidden: r.Hidden,
	}
	if t.Passes == nil {
		t.Passes = []evidence.Pass{}
	}
	if t.Reported == nil {
		t.Reported = []evidence.Statement{}
	}
	if r.Technique != "" {
		t.Limits = r.limits()
		if len(r.Namespaces.Attached) > 0 {
			t.Limits = append(t.Limits, evidence.Limit{
				Kind: evidence.LimitNamespaces, Text: "the drive has " + namespaceList(r.Namespaces.Attached) + ", too",
			})
		}
	}
	return t
}

// notErased names the namespaces that may hold data of others, and why, "" if there are none.
func (n Namespaces) notErased() string {
	unattached := "not erased: " + namespaceList(n.Unattached) + ", not attached to this controller"
	switch {
	case n.Unknown != nil:
		return fmt.Sprintf("other namespaces of the NVMe subsystem are not known: %v", n.Unknown)
	case n.Shared && len(n.Unattached) > 0:
		return "the NVMe subsystem is shared, " + unattached
	case n.Shared && !n.Listed:
		return "the NVMe subsystem is shared, not erased: namespaces of other controllers, if any"
	case len(n.Unattached) > 0:
		return unattached
	}
	return ""
}

// hiddenTexts returns the limits of a technique because of sectors that a drive hides or may hide.
func hiddenTexts(technique Technique, h *evidence.Hidden) (texts []string) {
	if h == nil {
		return nil
	}
	name := string(technique)
	if h.Bytes() > 0 {
		var parts []string
		unreached := evidence.Unreached(name, h)
		if unreached > 0 {
			parts = append(parts, fmt.Sprintf("%d bytes not erased", unreached))
		}
		if reached := h.Bytes() - unreached; reached > 0 {
			parts = append(parts,
				fmt.Sprintf("%d bytes erased if the drive follows ACS, which was not verified", reached))
		}
		texts = append(texts, fmt.Sprintf(
			"the drive hides %d bytes by an HPA or Accessible Max Address and %d bytes by a DCO: %s",
			h.NativeBytes, h.OverlayBytes, strings.Join(parts, ", ")))
	}
	var features []string
	if h.NativeUnknown {
		features = append(features, "an HPA or Accessible Max Address")
	}
	if h.OverlayUnknown {
		features = append(features, "a DCO")
	}
	if len(features) == 0 {
		return texts
	}
	erased := "if so, they were erased if the drive follows ACS, which was not verified"
	if evidence.UnreachedUnknown(name, h) {
		erased = "if so, they were not all erased"
	}
	return append(texts, fmt.Sprintf("it is not known whether the drive hides bytes by %s: %s",
		strings.Join(features, " or "), erased))
}

// fallback returns the reason of a report for a device that was overwritten because of an error of its own erase, nil
// without one to report.
func fallback(device block.Device, err error) error {
	//nolint:errorlint // the bare error has no reason to report
	if err == ErrUnsupported ||
		!isATA(device) && !isSCSI(device) && !errors.Is(err, errSanitize) && !errors.Is(err, ErrNotErased) {
		return nil
	}
	return err
}
