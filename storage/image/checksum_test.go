package image

import (
	"crypto/sha3"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"ironroot/internal/test/imagetest"
	"ironroot/storage/image/checksum"
)

func TestChecksumAlgorithms(t *testing.T) {
	data := imagetest.RandomBytes(9, 2*mib)
	server := imagetest.Serve(t, imagetest.Content(data))
	sums := []checksum.Sum{
		md5Of(data), sha256Of(data), sha512Of(data),
		{Algorithm: "sha256", Value: strings.ToUpper(sha256Of(data).Value)},
		{Algorithm: "SHA3-256", Value: fmt.Sprintf("%x", sha3.Sum256(data))},
	}
	for _, name := range checksum.Algorithms() {
		sum := checksum.Sum{Algorithm: name}
		for _, digits := range []int{32, 40, 56, 64, 96, 128} {
			sum.Value = strings.Repeat("0", digits)
			if h, err := sum.Hash(); err == nil {
				h.Write(data) //nolint:errcheck // a hash never fails
				sum.Value = hex.EncodeToString(h.Sum(nil))
				break
			}
		}
		sums = append(sums, sum)
	}
	for _, sum := range sums {
		src := rawSource(data, server.URL)
		src.Checksum = sum
		disk := imagetest.UsedDisk(t, 4*mib)
		if _, err := Write(t.Context(), disk, src, Options{}); err != nil {
			t.Errorf("%s: %v", sum.Algorithm, err)
		}
		src.Checksum.Value = strings.Repeat("0", len(sum.Value))
		disk = imagetest.UsedDisk(t, 4*mib)
		if _, err := Write(t.Context(), disk, src, Options{}); !imagetest.IsA[*checksum.MismatchError](err) {
			t.Errorf("%s, wrong: got error %v, want a ChecksumError", sum.Algorithm, err)
		}
		imagetest.MustNotBoot(t, disk)
	}
}

func TestImageWithoutChecksumIsRefused(t *testing.T) {
	data := imagetest.RandomBytes(9, 100)
	server := imagetest.Serve(t, imagetest.Content(data))
	for _, sum := range []checksum.Sum{
		{},
		{Algorithm: "sha256", Value: ""},
		{Algorithm: "", Value: sha256Of(data).Value},
		{Algorithm: "whirlpool", Value: strings.Repeat("a", 128)},
		{Algorithm: "sha256", Value: "abc"},
		{Algorithm: "md5", Value: sha256Of(data).Value},
	} {
		src := rawSource(data, server.URL)
		src.Checksum = sum
		if _, err := Write(t.Context(), imagetest.UsedDisk(t, mib), src, Options{}); err == nil {
			t.Errorf("checksum %+v was accepted", sum)
		}
	}
	if n := server.Requests.Load(); n != 0 {
		t.Errorf("got %d requests, want none", n)
	}
}
