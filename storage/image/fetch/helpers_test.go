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
