package evidence

import (
	"slices"
	"strings"
	"time"
)

// Format and Version identify the form of a record. A version is never changed: a new field or another meaning of a
// field is a new version. Version 2 adds Target.Hidden, version 3 ExpectUniform, and version 4 Target.Limits, which
// replaces Target.Detail. Version 5 adds the technique discard and ReadBack.Whole. A record has the lowest version that
// defines its fields and values. A rule of [Classify] can become stricter if no record that this program wrote is
// affected.
const (
	Format  = "ironroot-erase-evidence"
	Version = 5 // the newest
)

// Outcome is the result of an erase.
type Outcome string

// The outcomes.
const (
	Erased    Outcome = "erased"     // everything that was requested on the disk was erased
	Partial   Outcome = "partial"    // some partitions were erased, others were left as they are
	Failed    Outcome = "failed"     // the erase, or its verification, failed: what the disk holds is not known
	NotErased Outcome = "not erased" // nothing was attempted
)

// Record describes the erase of one disk. Times are in UTC by the clock of the machine.
type Record struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	Program string `json:"program"`        // name and version of the program that erased the disk
	Node    string `json:"node,omitempty"` // identifier of the machine, as its operator knows it

	Disk      Disk      `json:"disk"`
	Requested Request   `json:"requested"`
	Started   time.Time `json:"started"`
	Ended     time.Time `json:"ended"`
	Outcome   Outcome   `json:"outcome"`
	Reason    string    `json:"reason,omitempty"` // of an outcome other than Erased
	Targets   []Target  `json:"targets"`          // the disk, or its partitions that were erased
	Untouched []Place   `json:"untouched"`        // what was left as it is

	Sanitization Sanitization `json:"sanitization"`
}

// Disk identifies a disk. Values that the disk does not report are empty.
type Disk struct {
	Path       string `json:"path"`
	Type       string `json:"type"`      // as lsblk names it
	Transport  string `json:"transport"` // as lsblk names it
	Vendor     string `json:"vendor"`
	Model      string `json:"model"`
	Serial     string `json:"serial"`
	WWN        string `json:"wwn"`
	Firmware   string `json:"firmware"`
	Bytes      int64  `json:"bytes"`
	Sector     int64  `json:"logical_sector_bytes"`
	Rotational bool   `json:"rotational"`
	// Virtual is why the device is not known to be one physical drive, "" for a drive.
	Virtual string `json:"virtual,omitempty"`
}

// Request describes the requested erase. The program defines its options.
type Request struct {
	Operation string         `json:"operation"`
	Options   map[string]any `json:"options,omitempty"`
}

// Place is a disk or partition, and why it was not erased.
type Place struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// Target is a disk or partition that was erased, or whose erase was begun.
type Target struct {
	Path      string    `json:"path"`
	Technique string    `json:"technique"`        // "" if the erase failed
	Detail    string    `json:"detail,omitempty"` // the limits as one text, in records before version 4
	Limits    []Limit   `json:"limits,omitempty"` // since version 4
	Started   time.Time `json:"started"`
	Ended     time.Time `json:"ended"`
	Error     string    `json:"error,omitempty"`

	Passes   []Pass      `json:"passes"`   // writes of the whole target
	Reported []Statement `json:"reported"` // by the drive
	Samples  *Samples    `json:"samples"`  // null if no samples were compared
	ReadBack *ReadBack   `json:"read_back"`
	// Hidden describes the sectors that the drive hides from every user of its addresses, or may hide. It is nil if
	// the drive reports that it hides none, has no feature to hide some, or was not asked.
	Hidden *Hidden `json:"hidden,omitempty"`
}

// Limit describes a part that the erase of a target did not reach, or why it was not erased by another technique.
type Limit struct {
	Kind LimitKind `json:"kind"`
	Text string    `json:"text"`
}

// LimitKind is the kind of a limit. Every kind but LimitFallback rules out a purge.
type LimitKind string

// The kinds of limits.
const (
	LimitFallback   LimitKind = "fallback"   // why the target was not erased by its own command
	LimitHidden     LimitKind = "hidden"     // what the drive hides or may hide; only with Target.Hidden
	LimitNamespaces LimitKind = "namespaces" // namespaces of the drive that were not erased
	LimitPart       LimitKind = "part"       // which part of the target was erased, or how the rest was
)

// LimitText returns the texts of all limits.
func (t Target) LimitText() string { return strings.Join(t.limitTexts(), "; ") }

// limitTexts returns the texts of the limits of one of the kinds, or of all limits. The detail of a record before
// version 4 is of every kind.
func (t Target) limitTexts(kinds ...LimitKind) (texts []string) {
	if t.Detail != "" {
		return []string{t.Detail}
	}
	for _, limit := range t.Limits {
		if len(kinds) == 0 || slices.Contains(kinds, limit.Kind) {
			texts = append(texts, limit.Text)
		}
	}
	return texts
}

// Hidden is the size of what an ATA drive does not address now. At least one of the sizes is positive, or not known.
type Hidden struct {
	// NativeBytes lie between the addressable size and the native max address: a Host Protected Area, or what an
	// Accessible Max Address cuts off.
	NativeBytes int64 `json:"native_bytes"`
	// OverlayBytes lie beyond the native max address: they are cut off by a Device Configuration Overlay.
	OverlayBytes int64 `json:"overlay_bytes"`
	// NativeUnknown and OverlayUnknown mean that the drive has a feature that could hide such bytes, but did not say
	// how many. The size is then 0.
	NativeUnknown  bool `json:"native_unknown,omitempty"`
	OverlayUnknown bool `json:"overlay_unknown,omitempty"`
}

// Bytes returns the size of both parts, 0 for nil.
func (h *Hidden) Bytes() int64 {
	if h == nil {
		return 0
	}
	return h.NativeBytes + h.OverlayBytes
}

// Pass is one write of every byte of a target.
type Pass struct {
	Pattern string    `json:"pattern"` // PatternZeros or PatternRandom
	Bytes   int64     `json:"bytes"`
	Ended   time.Time `json:"ended"`
}

// The patterns of passes.
const (
	PatternZeros  = "zeros"
	PatternRandom = "random"
)

// Statement is a drive's report of its own state, or of a command.
type Statement struct {
	Time   time.Time `json:"time"`
	Source string    `json:"source"` // command or log page
	Text   string    `json:"text"`
	// Completed means that the drive reported the end of the erase without an error.
	Completed bool `json:"completed"`
}

// Samples are blocks that held known data immediately before the drive erased itself: random data that was written to
// them, or the previous content if the disk cannot be written at random places. They are at the places of
// [SampleOffsets].
type Samples struct {
	Seed      string `json:"seed"` // hexadecimal
	Blocks    int64  `json:"blocks"`
	Bytes     int64  `json:"block_bytes"`
	Written   bool   `json:"written"` // random data was written; otherwise the previous content was read
	Unchanged int64  `json:"unchanged_blocks"`
	// Comparable is the number of blocks that held data of which not all bytes are equal: an erased drive may look like
	// the others. It is Blocks if the data was written.
	Comparable int64 `json:"comparable_blocks"`
	// Detection is the probability that the samples find a range of data that the drive has not erased. It is null if
	// the data was not written.
	Detection []Detection `json:"detection"`
}

// Expectations of the content that is read back.
const (
	ExpectZeros   = "zeros"   // as the last pass wrote
	ExpectWritten = "written" // the random data of the last pass
	ExpectAny     = "any"     // the drive determines the content; it is compared by the samples

	// ExpectUniform means that each sector of 512 bytes must consist of equal bytes. If no block is uniform, the drive
	// may have written a pattern, and only the samples are compared. Since version 3.
	ExpectUniform = "uniform"
)

// ReadBack describes what was read after the erase, at the places of [Plan].
type ReadBack struct {
	Seed      string    `json:"seed"`            // hexadecimal; "" with Whole
	Whole     bool      `json:"whole,omitempty"` // every byte was read; since version 5
	Size      int64     `json:"size"`            // bytes of the target
	Read      int64     `json:"read_bytes"`
	Direct    bool      `json:"direct_io"` // without the kernel's cache
	Started   time.Time `json:"started"`
	Ended     time.Time `json:"ended"`
	Expected  string    `json:"expected"`
	Different int64     `json:"different_bytes"` // in blocks that differ from the expectation
	// The bytes that were read, by the content of their 4 KiB blocks.
	Zeros int64 `json:"zero_bytes"`
	Ones  int64 `json:"one_bits_bytes"`
	Other int64 `json:"other_bytes"`
	// Detection is the probability that a range of bytes at a random place, of which every byte differs from the
	// expectation, is found. It is null if the expectation is ExpectAny and other content was read, and if it is
	// ExpectUniform and only other content was read.
	Detection []Detection `json:"detection"`
}

// Detection is the probability that a contiguous range of a length is found.
type Detection struct {
	Bytes       int64   `json:"bytes"`
	Probability float64 `json:"probability"`
}

// Category is a category of NIST SP 800-88 Rev. 2.
type Category string

// The categories.
const (
	None  Category = ""
	Clear Category = "clear"
	Purge Category = "purge"
)

// Includes reports whether a disk of this category also meets another one.
func (c Category) Includes(other Category) bool {
	return c == other || other == None || c == Purge && other == Clear
}

// Sanitization is the claim of a record.
type Sanitization struct {
	Category Category `json:"nist_sp_800_88r2"`
	Method   Category `json:"ieee_2883_method"`
	// Technique is the one of IEEE 2883-2022, "" without a category.
	Technique string `json:"ieee_2883_technique"`
	// Reason is why the record claims no category, or no higher one.
	Reason string `json:"reason"`
	// Limits lists the exceptions and assumptions of the claim.
	Limits []string `json:"limits"`
}
