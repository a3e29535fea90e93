package inflate

import (
	"bufio"
	"bytes"
	"compress/flate"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	klauspost "github.com/klauspost/compress/flate"
)

// reference is a stream, and the result of zlib.
type reference struct {
	size   int // of the output
	good   bool
	sum    uint32 // CRC-32 of the content of a valid stream
	stream []byte
}

// references reads the file that testdata/zlib.py wrote.
func references(tb testing.TB) (list []reference) {
	tb.Helper()
	f, err := os.Open("testdata/zlib.txt")
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var r reference
		var stream string
		if _, err := fmt.Sscanf(lines.Text(), "%d %t %08x %s", &r.size, &r.good, &r.sum, &stream); err != nil {
			tb.Fatalf("line %d: %v", len(list)+1, err)
		}
		if r.stream, err = hex.DecodeString(strings.TrimPrefix(stream, "x")); err != nil {
			tb.Fatalf("line %d: %v", len(list)+1, err)
		}
		list = append(list, r)
	}
	if err := lines.Err(); err != nil || len(list) < 500 {
		tb.Fatalf("%d lines, %v", len(list), err)
	}
	return list
}

// Streams of all levels and strategies of zlib, and damaged ones, have the same result as with zlib.
func TestLikeZlib(t *testing.T) {
	var d Inflater
	for i, r := range references(t) {
		out := make([]byte, r.size)
		n, err := d.Fill(out, r.stream)
		switch {
		case (err == nil) != r.good:
			t.Errorf("line %d, room for %d: got error %v, want good %v", i+1, r.size, err, r.good)
		case r.good && (n != r.size || crc32.ChecksumIEEE(out) != r.sum):
			t.Errorf("line %d: got %d bytes, CRC-32 %08x, want %d bytes, %08x",
				i+1, n, crc32.ChecksumIEEE(out), r.size, r.sum)
		}
	}
}

// Two streams at once have the same results as each alone: streams of zlib, and larger ones with runs of literals.
func TestPair(t *testing.T) {
	list := references(t)
	for level := flate.HuffmanOnly; level <= flate.BestCompression; level++ {
		for seed := range uint64(12) {
			data := content(seed, 5000+5000*int(seed))
			if seed%3 == 0 {
				data = append(data, noise(seed, 20000)...)
			}
			stream := deflate(t, level, data)
			list = append(list, reference{size: len(data), stream: stream},
				reference{size: len(data) + 1, stream: stream})
			stream = bytes.Clone(stream)
			stream[len(stream)/3] ^= 4
			list = append(list, reference{size: len(data), stream: stream},
				reference{size: len(data), stream: stream[:len(stream)/2]})
		}
	}
	var p Pair
	r := rand.New(rand.NewPCG(1, 1))
	for range 3000 {
		var room, alone, streams [2][]byte
		var wantN [2]int
		var want [2]error
		i := [2]int{r.IntN(len(list)), r.IntN(len(list))}
		if r.IntN(2) == 0 { // both large
			i[0], i[1] = len(list)-1-i[0]%500, len(list)-1-i[1]%500
		}
		for k := range 2 {
			room[k], alone[k] = make([]byte, list[i[k]].size), make([]byte, list[i[k]].size)
			streams[k] = list[i[k]].stream
			wantN[k], want[k] = p.Fill(alone[k], streams[k])
		}
		n, errs := p.FillTwo(room, streams)
		for k := range 2 {
			if n[k] != wantN[k] || !errors.Is(errs[k], want[k]) || !bytes.Equal(room[k][:n[k]], alone[k][:n[k]]) {
				t.Fatalf("stream %d with %d: got %d bytes and error %v, alone %d and %v",
					i[k], i[1-k], n[k], errs[k], wantN[k], want[k])
			}
		}
	}
}

func noise(seed uint64, size int) []byte {
	data, r := make([]byte, size), rand.New(rand.NewPCG(seed, 6))
	for i := range data {
		data[i] = byte(r.Uint64())
	}
	return data
}

// content returns random bytes, text and zeros in turn.
func content(seed uint64, size int) []byte {
	r := rand.New(rand.NewPCG(seed, 5))
	data := make([]byte, 0, size)
	for len(data) < size {
		n := min(1+r.IntN(size/4+1), size-len(data))
		switch r.IntN(4) {
		case 0:
			data = append(data, make([]byte, n)...)
		case 1:
			data = append(data, bytes.Repeat([]byte("a file of an operating system "), n/30+1)[:n]...)
		case 2:
			data = append(data, noise(r.Uint64(), n)...)
		case 3:
			for range n {
				data = append(data, "etaoin shrdlu"[min(r.IntN(13), r.IntN(13))])
			}
		}
	}
	return data
}

// deflate compresses with a level of compress/flate: from flate.HuffmanOnly to 9.
func deflate(tb testing.TB, level int, data []byte) []byte {
	tb.Helper()
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, level)
	if err == nil {
		_, err = w.Write(data)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// Clusters of all sizes, in one Inflater. The bytes behind the output must not change.
func TestClusters(t *testing.T) {
	var d Inflater
	for level := flate.HuffmanOnly; level <= flate.BestCompression; level++ {
		for bits := 9; bits <= 21; bits++ {
			data := content(uint64(100*bits+level+2), 1<<bits)
			stream := deflate(t, level, data)
			behind := bytes.Repeat([]byte{0xa5}, 1000)
			out := append(make([]byte, len(data)), behind...)
			if n, err := d.Fill(out[:len(data)], append(stream, "the next cluster"...)); err != nil || n != len(data) {
				t.Fatalf("level %d, %d bytes: got %d, %v", level, len(data), n, err)
			}
			if !bytes.Equal(out, append(data, behind...)) {
				t.Errorf("level %d, %d bytes: the content differs, or what lies behind it", level, len(data))
			}
			// A shorter output is filled, a longer one is not.
			if n, err := d.Fill(out[:len(data)-7], stream); err != nil || n != len(data)-7 {
				t.Errorf("level %d, %d bytes less 7: got %d, %v", level, len(data), n, err)
			}
			if n, err := d.Fill(out[:len(data)+7], stream); !errors.Is(err, errShort) || n != len(data) {
				t.Errorf("level %d, %d bytes and 7: got %d, %v, want %d, %v",
					level, len(data), n, err, len(data), errShort)
			}
			if n, err := d.Fill(out[:len(data)], stream[:len(stream)/2]); !errors.Is(err, errShort) || n >= len(data) {
				t.Errorf("level %d, half of %d bytes: got %d, %v, want %v", level, len(stream), n, err, errShort)
			}
		}
	}
}

// writer writes the parts of streams; codes have their first bit first.
type writer struct {
	bytes []byte
	n     int
}

func (w *writer) bits(v, n int) *writer {
	for i := range n {
		if w.n%8 == 0 {
			w.bytes = append(w.bytes, 0)
		}
		w.bytes[w.n/8] |= byte(v>>i&1) << (w.n % 8)
		w.n++
	}
	return w
}

func (w *writer) code(v, n int) *writer { return w.bits(reverse(v, n), n) }

// block starts the last block.
func block(kind int) *writer { return new(writer).bits(1, 1).bits(kind, 2) }

// codes starts a block with dynamic codes. The code for their lengths has the symbols 1, 0, 18 and 16, with 2 bits
// each.
func codes(literals, distances int) *writer {
	w := block(2).bits(literals-257, 5).bits(distances-1, 5).bits(18-4, 4)
	for _, symbol := range []int{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1} {
		w.bits(map[int]int{0: 2, 1: 2, 16: 2, 18: 2}[symbol], 3)
	}
	return w
}

const (
	none, one, again, zeros = 0, 1, 2, 3 // the codes of codes
)

// only the end of the block has a code
func onlyEnd(w *writer) *writer {
	return w.code(zeros, 2).bits(138-11, 7).code(zeros, 2).bits(118-11, 7).code(one, 2)
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		stream *writer
		want   string
	}{
		{block(3), "block of an unknown type"},
		{block(0).bits(0, 5).bits(4, 16).bits(4, 16), "length of a stored block"},
		{block(0).bits(0, 5).bits(4, 16).bits(^4, 16), "ends early"},
		{block(1), "ends early"},
		{block(1).code(0, 7), "ends early"},
		{block(1).code(0b11000110, 8), "unknown length"},                    // symbol 286
		{block(1).code(0x30, 8).code(1, 7).code(30, 5), "unknown distance"}, // a literal, three bytes from
		{block(1).code(0x30, 8).code(1, 7).code(1, 5), "before the start"},  // two bytes before
		{block(1).code(1, 7).code(0, 5), "before the start"},                // of nothing
		{block(2).bits(30, 5).bits(0, 5).bits(0, 4), "too many lengths"},    // 287
		{block(2).bits(0, 5).bits(30, 5).bits(0, 4), "too many lengths"},    // 31 distances
		{block(2).bits(0, 14).bits(0o1111, 12), "code of code lengths"},     // four of one bit
		{block(2).bits(0, 14).bits(0o1000, 12), "code of code lengths"},     // one of one bit
		// The one before the first.
		{codes(257, 1).code(again, 2).bits(0, 2), "repeated code length"},
		{codes(257, 1).code(zeros, 2).bits(127, 7).code(zeros, 2).bits(127, 7), "repeated code length"}, // 276 of 258
		{codes(257, 1).code(zeros, 2).bits(127, 7).code(zeros, 2).bits(109, 7), "block without an end"},
		{onlyEnd(codes(258, 1)).code(one, 2).code(none, 2), "ends early"}, // a length, but no distance
		{onlyEnd(codes(259, 1)).code(one, 2).code(one, 2).code(none, 2), "code of literals and lengths"},
		{onlyEnd(codes(257, 3)).code(one, 2).code(one, 2).code(one, 2), "code of distances"},
		{codes(257, 1).code(one, 2).code(again, 2), "ends early"},
		{onlyEnd(codes(257, 1)).code(none, 2).bits(1, 1), "unknown length"},
		{onlyEnd(codes(257, 1)).code(none, 2).bits(0, 1), "ends early"},
	} {
		for _, behind := range []int{0, 100} { // with and without the checks at the end
			if behind > 0 && c.want == "ends early" {
				continue
			}
			var d Inflater
			stream := append(bytes.Clone(c.stream.bytes), make([]byte, behind)...)
			if _, err := d.Fill(make([]byte, 1000), stream); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%x: got error %v, want %q", stream, err, c.want)
			}
		}
	}
}

// FuzzFill compares with compress/flate and klauspost/compress/flate.
func FuzzFill(f *testing.F) {
	for _, r := range references(f) {
		f.Add(r.stream, uint16(r.size))
	}
	for level := flate.HuffmanOnly; level <= flate.BestCompression; level++ {
		data := content(uint64(level+2), 9000)
		f.Add(deflate(f, level, data), uint16(len(data)))
	}
	var d Pair
	f.Fuzz(func(t *testing.T, stream []byte, room uint16) {
		memory := bytes.Repeat([]byte{0xa5}, int(room)+300)
		out := memory[:room:room]
		n, err := d.Fill(out, stream)
		if n > int(room) || err == nil && n < int(room) {
			t.Fatalf("got %d bytes of %d, error %v", n, room, err)
		}
		if !bytes.Equal(memory[room:], bytes.Repeat([]byte{0xa5}, 300)) {
			t.Error("something was written behind the room")
		}
		twice := [2][]byte{make([]byte, room), make([]byte, room)}
		counts, errs := d.FillTwo(twice, [2][]byte{stream, stream})
		for i := range twice {
			if counts[i] != n || !errors.Is(errs[i], err) || !bytes.Equal(twice[i][:n], out[:n]) {
				t.Errorf("with itself: got %d bytes, error %v, alone %d, %v", counts[i], errs[i], n, err)
			}
		}
		for name, reader := range map[string]io.Reader{
			"compress/flate": flate.NewReader(bytes.NewReader(stream)),
			"klauspost":      klauspost.NewReader(bytes.NewReader(stream)),
		} {
			theirs, theirErr := io.ReadAll(io.LimitReader(reader, int64(room)+1))
			if have := min(n, len(theirs)); !bytes.Equal(out[:have], theirs[:have]) {
				t.Errorf("%s unpacks something else", name)
			}
			// It ignores the last bits of a truncated stream if they are fewer than the code of the block's end has.
			if err == nil && len(theirs) < n && !errors.Is(theirErr, io.ErrUnexpectedEOF) {
				t.Errorf("got %d bytes, %s unpacks %d: %v", n, name, len(theirs), theirErr)
			}
			// It accepts an incomplete code of code lengths if it has a single bit.
			if theirErr == nil && len(theirs) == int(room) && err != nil &&
				!errors.Is(err, corrupt("code of code lengths")) {
				t.Errorf("got error %v, %s unpacks the whole stream", err, name)
			}
		}
	})
}

// BenchmarkFill decompresses clusters of 64 KiB: one of noise and text, and one of a program.
func BenchmarkFill(b *testing.B) {
	mixed := content(1, 64<<10)
	for i := 0; i < len(mixed); i += 8 << 10 {
		copy(mixed[i:], content(uint64(i), 16<<10)[:4<<10])
	}
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		b.Fatal(err)
	}
	for name, data := range map[string][]byte{"mixed": mixed, "program": program[1<<20:][:64<<10]} {
		stream, out := deflate(b, 6, data), make([]byte, len(data))
		b.Run(name, func(b *testing.B) {
			var d Inflater
			b.SetBytes(int64(len(out)))
			for b.Loop() {
				if _, err := d.Fill(out, stream); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"-two", func(b *testing.B) {
			var p Pair
			outs := [2][]byte{out, make([]byte, len(out))}
			b.SetBytes(2 * int64(len(out)))
			for b.Loop() {
				if _, errs := p.FillTwo(outs, [2][]byte{stream, stream}); errs[0] != nil || errs[1] != nil {
					b.Fatal(errs)
				}
			}
		})
		b.Run(name+"-klauspost", func(b *testing.B) {
			b.SetBytes(int64(len(out)))
			in := bytes.NewReader(stream)
			z := klauspost.NewReader(in)
			for b.Loop() {
				in.Reset(stream)
				if err := z.(klauspost.Resetter).Reset(in, nil); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(z, out); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
