package evidence

import (
	"fmt"
	"strings"
)

// technique describes a technique of erasing.
type technique struct {
	category Category // if everything else permits it; None for a technique that claims none
	name     string   // in IEEE 2883-2022
	// completedBy is the command or log page by which the drive reports the end of its own erase; "" for an overwrite.
	completedBy string
	crypto      bool   // the drive deletes the key, so that the content afterwards is arbitrary
	reason      string // why the category is not purge, or why there is none
	// rotating means that the category is purge only for hard disks.
	rotating bool
	reach    reach
}

// reach describes which of the sectors that an ATA drive hides a technique reaches. Zero means none: the technique
// writes to addresses.
type reach byte

const (
	// reachesNative describes the normal erase, up to the native max address (ACS-2 and ACS-4, SECURITY ERASE UNIT).
	reachesNative reach = iota + 1
	// reachesAll describes the enhanced erase (all previously written user data) and sanitize (user data areas that
	// are not currently allocated or have become inaccessible).
	reachesAll
)

// Cryptographic reports whether a technique deletes a key, so that the content afterwards is arbitrary.
func Cryptographic(technique string) bool { return techniques()[technique].crypto }

// unreached returns how many of the hidden bytes a technique does not reach.
func (t technique) unreached(h *Hidden) int64 {
	switch {
	case h == nil || t.reach == reachesAll:
		return 0
	case t.reach == reachesNative:
		return h.OverlayBytes
	}
	return h.Bytes()
}

// unreachedUnknown reports whether a drive may hide bytes, of a number that is not known, that a technique does not
// reach.
func (t technique) unreachedUnknown(h *Hidden) bool {
	switch {
	case h == nil || t.reach == reachesAll:
		return false
	case t.reach == reachesNative:
		return h.OverlayUnknown
	}
	return h.NativeUnknown || h.OverlayUnknown
}

// UnreachedUnknown reports whether a drive may hide bytes, of a number that is not known, that a technique does not
// reach according to the standard. A technique without a category reaches none.
func UnreachedUnknown(name string, h *Hidden) bool { return techniques()[name].unreachedUnknown(h) }

// Unreached returns how many of the bytes that a drive hides a technique does not reach, according to the standard. A
// technique without a category reaches none.
func Unreached(name string, h *Hidden) int64 { return techniques()[name].unreached(h) }

// The texts of limits, reasons and techniques are part of the format: of version 1, unless marked otherwise. [Parse]
// compares them. Never change them; another wording is another version.
const (
	hiddenAreas = "areas that the drive does not address were not reached: HPA, DCO, spare and retired blocks"
	keyed       = "assumes that the drive has encrypted all data since its first use, as its maker states"
	implemented = "assumes that the drive's firmware erases what its command says"

	// Of version 2.
	hiddenNotVerified = "the drive hides %d bytes, and it cannot be verified that the erase reached them"
	hiddenNotReached  = "%d bytes that the drive hides by an HPA, DCO or Accessible Max Address were not reached"
	unknownUnverified = "it is not known whether the drive hides bytes, and it cannot be verified that the " +
		"erase reached them"
	unknownUnreached = "it is not known whether the drive hides bytes by an HPA, DCO or Accessible Max Address, " +
		"which were not reached"

	vendorUnique = "IEEE 2883 leaves it to the maker whether Format NVM is a purge"

	// Of version 5.
	discarded = "a discard is no technique of IEEE 2883: the disk reads as zeros, and its medium can hold the data"
)

// Sources of a [Statement] by which a drive reports the end of its own erase: a command or a log page. A technique has
// a category only if its own source reported the end. The texts are part of the format.
const (
	SourceFormat       = "Format NVM"
	SourceNVMeSanitize = "NVMe Sanitize Status log page"
	SourceATASecurity  = "SECURITY ERASE UNIT"
	SourceATASanitize  = "SANITIZE STATUS EXT"
	SourceSCSISanitize = "TEST UNIT READY"
)

// techniques are the techniques that erase a disk as a whole, by the names that records have.
func techniques() map[string]technique {
	return map[string]technique{
		discardTechnique: {category: None, reason: discarded},
		overwriteTechnique: {
			category: Clear, name: "overwrite", reason: "an overwrite reaches addressable blocks only",
		},

		"nvme-format-crypto": {
			category: Clear, name: "NVMe Format NVM, cryptographic erase", completedBy: SourceFormat, crypto: true,
			reason: vendorUnique,
		},
		"nvme-format-user": {
			category: Clear, name: "NVMe Format NVM, user data erase", completedBy: SourceFormat, reason: vendorUnique,
		},
		"nvme-sanitize-block": {category: Purge, name: "NVMe Sanitize, block erase", completedBy: SourceNVMeSanitize},
		"nvme-sanitize-crypto": {
			category: Purge, name: "NVMe Sanitize, crypto erase", completedBy: SourceNVMeSanitize, crypto: true,
		},
		"nvme-sanitize-overwrite": {category: Purge, name: "NVMe Sanitize, overwrite", completedBy: SourceNVMeSanitize},

		"ata-secure-erase-enhanced": {
			category: Purge, name: "ATA SECURITY ERASE UNIT, enhanced mode", completedBy: SourceATASecurity,
			rotating: true, reason: "the enhanced erase is a purge of hard disks only", reach: reachesAll,
		},
		"ata-secure-erase": {
			category: Clear, name: "ATA SECURITY ERASE UNIT", completedBy: SourceATASecurity,
			reason: "the normal erase need not reach blocks that the drive does not address", reach: reachesNative,
		},
		"ata-sanitize-block": {
			category: Purge, name: "ATA BLOCK ERASE EXT", completedBy: SourceATASanitize, reach: reachesAll,
		},
		"ata-sanitize-crypto": {
			category: Purge, name: "ATA CRYPTO SCRAMBLE EXT", completedBy: SourceATASanitize, crypto: true,
			reach: reachesAll,
		},
		"ata-sanitize-overwrite": {
			category: Purge, name: "ATA OVERWRITE EXT", completedBy: SourceATASanitize, reach: reachesAll,
		},

		"scsi-sanitize-block": {category: Purge, name: "SCSI SANITIZE BLOCK ERASE", completedBy: SourceSCSISanitize},
		"scsi-sanitize-crypto": {
			category: Purge, name: "SCSI SANITIZE CRYPTOGRAPHIC ERASE", completedBy: SourceSCSISanitize, crypto: true,
		},
		"scsi-sanitize-overwrite": {category: Purge, name: "SCSI SANITIZE OVERWRITE", completedBy: SourceSCSISanitize},
	}
}

// MetadataTechnique is the technique that erases partition tables and signatures only.
const MetadataTechnique = "metadata"

// discardTechnique is the technique that tells the disk that no block of it is in use.
const discardTechnique = "discard"

// overwriteTechnique is the technique that writes every byte, and the only one that replaces another that failed.
const overwriteTechnique = "overwrite"

// Classify returns the category that the facts of a record support: the technique's, lowered by whatever was not done,
// not reported or not verified. Without a verified technique it is None.
func Classify(r Record) Sanitization {
	t, target, problem := claimable(r)
	if problem != "" {
		return Sanitization{Reason: problem, Limits: []string{}}
	}
	s := Sanitization{Category: t.category, Technique: t.name, Limits: []string{}}
	restrictions := target.limitTexts(LimitHidden, LimitNamespaces, LimitPart)
	switch {
	case r.Disk.Virtual != "":
		s.Category, s.Reason = Clear, "the physical media of a virtual disk are not known"
		s.Limits = append(s.Limits, fmt.Sprintf("the physical media were not reached: %s", r.Disk.Virtual))
	case t.rotating && !r.Disk.Rotational:
		s.Category, s.Reason = Clear, t.reason
	case s.Category == Purge && target.Hidden.Bytes() > 0:
		s.Category, s.Reason = Clear, fmt.Sprintf(hiddenNotVerified, target.Hidden.Bytes())
	case s.Category == Purge && target.Hidden != nil:
		s.Category, s.Reason = Clear, unknownUnverified
	case s.Category == Purge && len(restrictions) > 0:
		s.Category, s.Reason = Clear, "the technique was restricted: "+strings.Join(restrictions, "; ")
	case s.Category != Purge:
		s.Reason = t.reason
	}
	s.Method = s.Category
	switch {
	case r.Disk.Virtual != "":
	case t.crypto:
		s.Limits = append(s.Limits, keyed)
	case t.completedBy != "":
		s.Limits = append(s.Limits, implemented)
	}
	if s.Category == Clear && r.Disk.Virtual == "" {
		s.Limits = append(s.Limits, hiddenAreas)
	}
	s.Limits = append(s.Limits, target.limitTexts()...)
	return s
}

// claimable returns the technique of a record that can claim a category and the only target, or why there is none.
func claimable(r Record) (technique, Target, string) {
	no := func(format string, args ...any) (technique, Target, string) {
		return technique{}, Target{}, fmt.Sprintf(format, args...)
	}
	if r.Outcome != Erased {
		return no("the disk was not erased as a whole: %s", r.Outcome)
	}
	if len(r.Untouched) > 0 || len(r.Targets) != 1 || r.Targets[0].Path != r.Disk.Path {
		return no("parts of the disk were left as they are")
	}
	target := r.Targets[0]
	if target.Technique == MetadataTechnique {
		return no("only metadata was erased")
	}
	t, ok := techniques()[target.Technique]
	if !ok {
		return no("the technique %q has no category", target.Technique)
	}
	if left := t.unreached(target.Hidden); left > 0 {
		return no(hiddenNotReached, left)
	}
	if t.unreachedUnknown(target.Hidden) {
		return no(unknownUnreached)
	}
	back := target.ReadBack
	switch {
	case back == nil:
		return no("the disk was not read back")
	case !back.Direct:
		return no("the disk was read back through the kernel's cache")
	case back.Size != r.Disk.Bytes:
		return no("%d bytes of the disk were considered for the read-back, not %d", back.Size, r.Disk.Bytes)
	case back.Read <= 0 || back.Different != 0:
		return no("the content that was read back is not the expected one")
	case t.category == None:
		return no("%s", t.reason)
	case t.completedBy != "" && back.Expected != ExpectAny && back.Expected != ExpectUniform:
		return no("the content that was read back was not expected to be that of the drive's own erase")
	case t.completedBy == "" && !target.comparesLastPass():
		return no("the content that was read back was not compared with what was written")
	case t.completedBy == "" && target.Passes[len(target.Passes)-1].Bytes != r.Disk.Bytes:
		return no("the last pass did not write every byte")
	case t.completedBy == "":
		return t, target, ""
	}
	completed := false
	for _, statement := range target.Reported {
		if statement.Source == t.completedBy {
			completed = statement.Completed
		}
	}
	compared := target.Samples != nil && target.Samples.Comparable > 0 && target.Samples.Unchanged == 0
	switch {
	case !completed:
		return no("the drive's report of the completion is not known")
	case !compared:
		return no("no samples from before the erase were compared")
	}
	return t, target, ""
}

// comparesLastPass reports whether the read-back expected what the last pass wrote. The target was read back.
func (t Target) comparesLastPass() bool {
	if len(t.Passes) == 0 {
		return false
	}
	expectations := map[string]string{PatternZeros: ExpectZeros, PatternRandom: ExpectWritten}
	return expectations[t.Passes[len(t.Passes)-1].Pattern] == t.ReadBack.Expected
}
