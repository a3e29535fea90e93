package uki

import (
	"crypto"
	_ "crypto/sha1" // of old TPMs
	_ "crypto/sha256"
	_ "crypto/sha512"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
)

// Numbers of the registers (UAPI Group Specifications, Linux TPM PCR Registry).
const (
	bootLoaderPCR = 4  // UEFI programs that the firmware starts
	imagePCR      = 11 // sections of a unified kernel image, and phases of the boot
)

// banks are the hash algorithms of a TPM, by their names.
var banks = []struct {
	name string
	hash crypto.Hash
}{{"sha1", crypto.SHA1}, {"sha256", crypto.SHA256}, {"sha384", crypto.SHA384}, {"sha512", crypto.SHA512}}

// phases are the values of register 11 that are predicted, as systemd-measure does: the words that systemd extends it
// by until then. The ramdisk extends it by none.
var phases = []string{
	"", "enter-initrd", "enter-initrd:leave-initrd", "enter-initrd:leave-initrd:sysinit",
	"enter-initrd:leave-initrd:sysinit:ready",
}

// measuredSections are the sections that the stub measures, in its order.
var measuredSections = []string{
	linuxSection, osrelSection, cmdlineSection, initrdSection, unameSection, sbatSection,
}

// Prediction has the values of PCRs (platform configuration registers) after an image has started, for each hash
// algorithm.
type Prediction struct {
	// Authenticode are the digests of the image, which the firmware extends register 4 by. The signature does not
	// change them.
	Authenticode map[string]string `json:"authenticode"`
	// PCR4 are the values of register 4 if the firmware starts the image itself, at its first attempt.
	PCR4 map[string]string `json:"pcr4"`
	// PCR11 are the values of register 11.
	PCR11 map[string][]PhaseValue `json:"pcr11"`
}

// PhaseValue is the value of register 11 after the phases of a boot.
type PhaseValue struct {
	Phase string `json:"phase"` // words separated by ":"
	PCR   int    `json:"pcr"`
	Hash  string `json:"hash"`
}

// predict returns the values for an image and its sections.
func predict(image []byte, sections []section) (Prediction, error) {
	p := Prediction{Authenticode: map[string]string{}, PCR4: map[string]string{}, PCR11: map[string][]PhaseValue{}}
	for _, bank := range banks {
		digest, err := imageDigest(image, bank.hash)
		if err != nil {
			return Prediction{}, err
		}
		p.Authenticode[bank.name] = hex.EncodeToString(digest)
		p.PCR4[bank.name] = hex.EncodeToString(loaderRegister(bank.hash, digest))
		p.PCR11[bank.name] = imageRegister(bank.hash, sections)
	}
	return p, nil
}

// register is the value of a PCR.
type register struct {
	hash  crypto.Hash
	value []byte
}

func newRegister(hash crypto.Hash) *register { return &register{hash, make([]byte, hash.Size())} }

// extend extends the register by a digest.
func (r *register) extend(digest []byte) {
	r.value = sum(r.hash, append(slices.Clone(r.value), digest...))
}

func sum(hash crypto.Hash, data []byte) []byte {
	h := hash.New()
	h.Write(data) // never fails
	return h.Sum(nil)
}

// loaderRegister returns register 4 after the firmware has started an image (TCG PC Client Platform Firmware Profile,
// section 3.3.4.5).
func loaderRegister(hash crypto.Hash, image []byte) []byte {
	r := newRegister(hash)
	r.extend(sum(hash, []byte("Calling EFI Application from Boot Option")))
	r.extend(sum(hash, binary.LittleEndian.AppendUint32(nil, 0))) // separator
	r.extend(image)
	return r.value
}

// imageRegister returns the values of register 11 after the stub has measured the sections: for each of them its name
// with a final zero, and its content.
func imageRegister(hash crypto.Hash, sections []section) []PhaseValue {
	r := newRegister(hash)
	for _, name := range measuredSections {
		for _, s := range sections {
			if s.name == name {
				r.extend(sum(hash, []byte(name+"\x00")))
				r.extend(sum(hash, s.content))
			}
		}
	}
	start := r.value
	var values []PhaseValue
	for _, phase := range phases {
		r.value = start
		for _, word := range strings.FieldsFunc(phase, func(c rune) bool { return c == ':' }) {
			r.extend(sum(hash, []byte(word)))
		}
		values = append(values, PhaseValue{Phase: phase, PCR: imagePCR, Hash: hex.EncodeToString(r.value)})
	}
	return values
}

// encode returns the file that is written next to an image.
func (p Prediction) encode() ([]byte, error) {
	text, err := json.MarshalIndent(p, "", "  ")
	return append(text, '\n'), err
}
