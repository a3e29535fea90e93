package image

import (
	"crypto/md5"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"

	"ironroot/storage/image/checksum"
	"ironroot/storage/image/fetch"
)

func sha256Of(data []byte) checksum.Sum {
	sum := sha256.Sum256(data)
	return checksum.Sum{Algorithm: "sha256", Value: hex.EncodeToString(sum[:])}
}

func sha512Of(data []byte) checksum.Sum {
	sum := sha512.Sum512(data)
	return checksum.Sum{Algorithm: "sha512", Value: hex.EncodeToString(sum[:])}
}

func md5Of(data []byte) checksum.Sum {
	sum := md5.Sum(data)
	return checksum.Sum{Algorithm: "md5", Value: hex.EncodeToString(sum[:])}
}

// urls parses the URLs of a test.
func urls(list ...string) []fetch.URL {
	var parsed []fetch.URL
	for _, text := range list {
		u, err := fetch.ParseURL(text)
		if err != nil {
			panic(err)
		}
		parsed = append(parsed, u)
	}
	return parsed
}
