package inflate

import "errors"

// errShort means that the stream or the output ended.
var errShort = errors.New("the stream ends early")

// corrupt is the error of an invalid stream.
type corrupt string

func (c corrupt) Error() string { return "corrupt deflate stream: " + string(c) }

// Inflater decompresses one stream after another. It has 50 KiB of tables and is not safe for concurrent use. The
// zero value is ready.
type Inflater struct {
	in, out []byte
	pos, n  int    // number of bytes that were read of in, and written to out
	bits    uint64 // read but not used, the next one lowest
	count   uint   // number of those bits; above them are zeros, or bits that will be read again

	inside, final bool // a block has begun and not ended; it is, or was, the last one

	fixed   bool // the codes are the fixed ones
	lit     [litSize]entry
	dist    [distSize]entry
	lengths [maxLit + maxDist]uint8
}

// Fill decompresses a stream until out is full, and returns the number of bytes: len(out) if there is no error. Data
// behind the end of the stream is ignored.
func (d *Inflater) Fill(out, stream []byte) (int, error) {
	d.begin(out, stream)
	_, err := d.run(false)
	return d.finish(err)
}

func (d *Inflater) begin(out, stream []byte) {
	d.in, d.out, d.pos, d.n, d.bits, d.count, d.inside, d.final = stream, out, 0, 0, 0, 0, false, false
}

// finish returns the result of a run.
func (d *Inflater) finish(err error) (int, error) {
	short := err == nil || errors.Is(err, errShort)
	switch {
	case short && d.n < len(d.out):
		err = errShort
	case short: // the stream has, or should have, more content than fits
		err = nil
	}
	d.in, d.out = nil, nil
	return d.n, err
}

// run decompresses the stream to its end. If it may pause, it stops where many literals follow each other.
func (d *Inflater) run(pause bool) (paused bool, err error) {
	for {
		for !d.inside {
			if d.final {
				return false, nil
			}
			if err := d.block(); err != nil {
				return false, err
			}
		}
		if paused, err := d.fast(pause); paused || err != nil {
			return paused, err
		}
		if d.inside {
			if err := d.symbol(); err != nil {
				return false, err
			}
		}
	}
}

// block starts a block, or copies one that is not compressed.
func (d *Inflater) block() error {
	header, err := d.take(3)
	if err != nil {
		return err
	}
	d.final = header&1 != 0
	switch header >> 1 {
	case 0:
		return d.stored()
	case 1:
		d.fixedCodes()
	case 2:
		err = d.dynamicCodes()
	default:
		err = corrupt("block of an unknown type")
	}
	d.inside = err == nil
	return err
}

// refill reads as many bytes of the stream as fit: then there are 56 to 63 bits, or fewer at its end.
func (d *Inflater) refill() {
	for d.count < 56 && d.pos < len(d.in) {
		d.bits |= uint64(d.in[d.pos]) << d.count
		d.pos++
		d.count += 8
	}
}

// take returns the next n bits, 32 at most.
func (d *Inflater) take(n uint) (uint, error) {
	d.refill()
	if n > d.count {
		return 0, errShort
	}
	v := uint(d.bits & (1<<n - 1))
	d.bits >>= n
	d.count -= n
	return v, nil
}

// stored copies a block that is not compressed.
func (d *Inflater) stored() error {
	d.bits >>= d.count % 8
	d.count -= d.count % 8
	v, err := d.take(32)
	if err != nil {
		return err
	}
	length := int(v & 0xffff)
	if length != int(^v>>16&0xffff) {
		return corrupt("length of a stored block")
	}
	d.pos -= int(d.count / 8)
	d.bits, d.count = 0, 0
	copied := copy(d.out[d.n:], d.in[d.pos:min(d.pos+length, len(d.in))])
	d.pos += copied
	d.n += copied
	if copied < length {
		return errShort
	}
	return nil
}

const (
	// fastLiterals is the number of literals of litBits each in the 56 bits of one refill.
	fastLiterals = 5
	// With so many bytes left in the stream and in the output, fast needs no checks: in a round it refills twice, by
	// loads of 8 bytes, and writes some literals and the longest match, with the bytes that copyMatch writes behind it.
	fastIn  = 16
	fastOut = fastLiterals + 258 + 16
)

// fast repeats symbol while enough is left of the stream and of the output, or until it may pause.
func (d *Inflater) fast(pause bool) (paused bool, err error) {
	in, out, pos, n := d.in, d.out, d.pos, d.n
	literals := n // where the literals after the last match began
	b, count := d.bits, d.count
round:
	for pos <= len(in)-fastIn && n <= len(out)-fastOut {
		b |= load64(in, pos) << (count & 63)
		pos += int(63-count) >> 3
		count |= 56
		e := d.lit[b&(1<<litBits-1)]
		if e&literal != 0 {
			for i := 1; ; i++ {
				b >>= e & 63
				count -= uint(e & 63)
				out[n] = byte(e >> valueShift)
				n++
				if i == fastLiterals {
					if pause && n-literals >= manyLiterals {
						paused = true
						break round
					}
					continue round
				}
				if e = d.lit[b&(1<<litBits-1)]; e&literal == 0 {
					break
				}
			}
			b |= load64(in, pos) << (count & 63)
			pos += int(63-count) >> 3
			count |= 56
		}
		if e&special != 0 {
			if e&link != 0 {
				e = d.lit[e.at(b>>litBits)&(litSize-1)]
			}
			if e&(literal|special) != 0 {
				b >>= e & 63
				count -= uint(e & 63)
				if e&literal != 0 {
					out[n] = byte(e >> valueShift)
					n++
					continue
				}
				if d.inside = e&stop == 0; d.inside {
					err = corrupt("unknown length")
				}
				break
			}
		}
		length := e.value(b)
		b >>= e & 63
		count -= uint(e & 63)
		e = d.dist[b&(1<<distBits-1)]
		if e&special != 0 {
			if e&link != 0 {
				e = d.dist[e.at(b>>distBits)&(distSize-1)]
			}
			if e&special != 0 {
				err = corrupt("unknown distance")
				break
			}
		}
		distance := e.value(b)
		b >>= e & 63
		count -= uint(e & 63)
		if distance > n {
			err = corrupt("distance to before the start")
			break
		}
		copyMatch(out, n, distance, length)
		n += length
		literals = n
	}
	d.pos, d.n, d.bits, d.count = pos, n, b, count
	return paused, err
}

// symbol decompresses one literal or match, with all checks.
func (d *Inflater) symbol() error {
	d.refill()
	e := d.lit[d.bits&(1<<litBits-1)]
	if e&link != 0 {
		e = d.lit[e.at(d.bits>>litBits)&(litSize-1)]
	}
	length, err := d.use(e)
	switch {
	case err != nil:
		return err
	case e&stop != 0:
		d.inside = false
		return nil
	case e&special != 0:
		return corrupt("unknown length")
	case e&literal != 0:
		if d.n == len(d.out) {
			return errShort
		}
		d.out[d.n] = byte(length)
		d.n++
		return nil
	}
	d.refill()
	e = d.dist[d.bits&(1<<distBits-1)]
	if e&link != 0 {
		e = d.dist[e.at(d.bits>>distBits)&(distSize-1)]
	}
	distance, err := d.use(e)
	switch {
	case err != nil:
		return err
	case e&special != 0:
		return corrupt("unknown distance")
	case d.n == len(d.out):
		return errShort
	case distance > d.n:
		return corrupt("distance to before the start")
	}
	free := len(d.out) - d.n
	overlapping(d.out, d.n, distance, min(length, free))
	d.n += min(length, free)
	if length > free {
		return errShort
	}
	return nil
}

// use consumes the bits of a code with its extra bits, and returns its value.
func (d *Inflater) use(e entry) (int, error) {
	if uint(e&63) > d.count {
		return 0, errShort
	}
	v := e.value(d.bits)
	d.bits >>= e & 63
	d.count -= uint(e & 63)
	return v, nil
}

// copyMatch copies length bytes, 258 at most, from distance bytes before n to n, and up to 16 undefined bytes behind
// it.
func copyMatch(out []byte, n, distance, length int) {
	if distance < 16 || length > 64 {
		overlapping(out, n, distance, length)
		return
	}
	from, to := out[n-distance:], out[n:]
	for i := 0; i < length; i += 16 {
		a, b := load64(from, i), load64(from, i+8)
		store64(to, i, a)
		store64(to, i+8, b)
	}
}

// overlapping copies length bytes from distance bytes before n to n, where the ranges can overlap.
func overlapping(out []byte, n, distance, length int) {
	start, end := n-distance, n+length
	for n < end {
		n += copy(out[n:end], out[start:n])
	}
}

// load64 and store64 do the same as encoding/binary, which is not inlined in the ramdisk. The compiler makes one
// instruction of each.
func load64(p []byte, i int) uint64 {
	p = p[i : i+8]
	return uint64(p[0]) | uint64(p[1])<<8 | uint64(p[2])<<16 | uint64(p[3])<<24 |
		uint64(p[4])<<32 | uint64(p[5])<<40 | uint64(p[6])<<48 | uint64(p[7])<<56
}

func store64(p []byte, i int, v uint64) {
	p = p[i : i+8]
	p[0], p[1], p[2], p[3] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
	p[4], p[5], p[6], p[7] = byte(v>>32), byte(v>>40), byte(v>>48), byte(v>>56)
}
