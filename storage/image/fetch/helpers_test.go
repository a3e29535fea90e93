package fetch

import (
	"crypto/sha256"
	"encoding/hex"

	"ironroot/storage/image/checksum"
)

const mib = 1 << 20

func sha256Of(data []byte) checksum.Sum {
	sum := sha256.Sum256(data)
	return checksum.Sum{Algorithm: "sha256", Value: hex.EncodeToString(sum[:])}
}

// mustParse parses the URL of a test.
func mustParse(text string) URL {
	u, err := ParseURL(text)
	if err != nil {
		panic(err)
	}
	return u
}

// anImage is the URL of an image that checksum files name.
var anImage = mustParse("http://host/image.raw")
