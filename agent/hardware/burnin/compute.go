package burnin

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"math"
	"math/bits"
)

// computation is a calculation with a known result. It takes some milliseconds.
type computation struct {
	name string
	run  func(*workspace) string
	want string
}

// workspace is the memory of one worker.
type workspace struct {
	bytes  []byte
	floats []float64
}

const workspaceBytes = 1 << 20

func newWorkspace() *workspace {
	return &workspace{bytes: make([]byte, workspaceBytes), floats: make([]float64, 4096)}
}

// computations use the units of a processor: integer arithmetic, floating point, and the instructions for
// cryptography and checksums, which most processors have. Their results are the same on all architectures.
var computations = []computation{
	trialDivision,
	{"integer arithmetic", integers, "36a8637153aecda7"},
	{"floating point", floats, "4b44f740918e53f0"},
	{"SHA-256", hashes, "ffae4aa466c5bab1"},
	{"AES and CRC-32C", ciphers, "31437a05da6a497e"},
}

// trialDivision is the event of sysbench's test of processors with --cpu-max-prime=15000: [Machine.ComputeSpeed] counts
// these.
var trialDivision = computation{"trial division", primes, "00000000000006d9"}

// primes counts the primes from 3 to 15000 by trial division.
func primes(*workspace) string {
	count := uint64(0)
	for n := uint64(3); n < 15000; n++ {
		root, divisor := uint64(math.Sqrt(float64(n))), uint64(2)
		for divisor <= root && n%divisor != 0 {
			divisor++
		}
		if divisor > root {
			count++
		}
	}
	return digest(count)
}

// integers multiplies, divides and rotates numbers of 64 bits.
func integers(*workspace) string {
	x, sum := uint64(0x9e3779b97f4a7c15), uint64(0)
	for i := range uint64(1 << 18) {
		high, low := bits.Mul64(x, 0xd1342543de82ef95+2*i)
		quotient, remainder := bits.Div64(high%(x|1), low, x|1)
		sum += quotient ^ bits.RotateLeft64(remainder, int(x>>58)) + uint64(bits.OnesCount64(low))
		x = low ^ high>>7 ^ i
	}
	return digest(sum ^ x)
}

// floats computes with operations whose rounding IEEE 754 defines. Explicit fused operations keep the compiler from
// choosing others on some architectures.
func floats(w *workspace) string {
	for i := range w.floats {
		w.floats[i] = (float64(i) + 0.5) / float64(len(w.floats))
	}
	for round := range 64 {
		for i, x := range w.floats { // all values stay between 0 and 1, and a wrong bit changes more and more
			y := w.floats[(i*7+round)%len(w.floats)]
			root := math.Sqrt(math.FMA(-x, x, x) * 3.9999)
			w.floats[i] = root * root / math.FMA(y, 0x1p-20, 1)
		}
	}
	sum := uint64(0)
	for _, x := range w.floats {
		sum = bits.RotateLeft64(sum, 5) ^ math.Float64bits(x)
	}
	return digest(sum)
}

// hashes computes a chain of SHA-256 digests.
func hashes(w *workspace) string {
	fill(w.bytes, 1)
	sum := sha256.Sum256(w.bytes)
	for range 4096 {
		sum = sha256.Sum256(sum[:])
	}
	return hex.EncodeToString(sum[:8])
}

// ciphers encrypts a buffer by AES and computes CRC-32C checksums of it.
func ciphers(w *workspace) string {
	fill(w.bytes, 2)
	block, err := aes.NewCipher(w.bytes[:32])
	if err != nil {
		return err.Error() // a key of 32 bytes is valid
	}
	stream := cipher.NewCTR(block, w.bytes[32:32+aes.BlockSize])
	sum := uint64(0)
	for range 4 {
		stream.XORKeyStream(w.bytes, w.bytes)
		sum = sum<<16 ^ uint64(crc32.Checksum(w.bytes, castagnoli))
	}
	return digest(sum)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// fill fills a buffer, whose length is a multiple of 8, with pseudo-random numbers.
func fill(b []byte, seed uint64) {
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], mix(seed+uint64(i)))
	}
}

// mix is the output function of the generator SplitMix64: different numbers have different, evenly distributed
// results.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func digest(x uint64) string { return hex.EncodeToString(binary.BigEndian.AppendUint64(nil, x)) }
