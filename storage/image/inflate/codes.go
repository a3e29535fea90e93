package inflate

import "math/bits"

const (
	maxCodeBits = 15 // of a code for literals, lengths and distances
	maxLit      = 288
	maxDist     = 32

	// Codes of up to so many bits are found by one look-up in their table. Longer ones need a second look-up, in a part
	// of the table for codes with the same beginning.
	litBits  = 11
	distBits = 8
	// The parts have at most 16 or 128 entries, and there is at most one for every two long codes.
	litSize  = 8192
	distSize = 4096

	numLengths = 19 // symbols of the code for code lengths
	lengthBits = 7
	endOfBlock = 256
)

// entry describes a code. Bits 0 to 7 are its length with the extra bits behind it, bits 8 to 11 its length alone,
// and bits 16 to 30 a literal, the smallest length or distance, or the beginning of a part of the table.
type entry uint32

const (
	literal    entry = 1 << 31
	special    entry = 1 << 14 // link, stop or not a symbol
	stop       entry = 1 << 13 // the end of the block
	link       entry = 1 << 12 // to a part of the table; bits 0 to 7 are its number of index bits
	valueShift       = 16
)

// at returns the entry of a link, for the bits behind the link's.
func (e entry) at(bits uint64) uint64 { return uint64(e>>valueShift) + bits&(1<<(e&63)-1) }

// value returns the value of the code at the beginning of bits.
func (e entry) value(bits uint64) int {
	return int(e&^literal>>valueShift) + int(bits&(1<<(e&63)-1)>>(e>>8&15))
}

// meaning returns the entry of a symbol, without the length of its code.
type meaning func(symbol int) entry

func litMeaning(symbol int) entry {
	switch {
	case symbol < endOfBlock:
		return literal | entry(symbol)<<valueShift
	case symbol == endOfBlock:
		return special | stop
	case symbol < 265:
		return entry(symbol-257+3) << valueShift
	case symbol < 285:
		extra := (symbol - 261) / 4
		return entry(3+(4+(symbol-261)%4)<<extra)<<valueShift | entry(extra)
	case symbol == 285:
		return 258 << valueShift
	}
	return special
}

func distMeaning(symbol int) entry {
	switch {
	case symbol < 4:
		return entry(symbol+1) << valueShift
	case symbol < 30:
		extra := symbol/2 - 1
		return entry(1+(2+symbol%2)<<extra)<<valueShift | entry(extra)
	}
	return special
}

func lengthMeaning(symbol int) entry { return entry(symbol) << valueShift }

// fixedCodes sets the codes of blocks with fixed codes.
func (d *Inflater) fixedCodes() {
	if d.fixed {
		return
	}
	for i := range maxLit {
		switch {
		case i < 144, i >= 280:
			d.lengths[i] = 8
		case i < 256:
			d.lengths[i] = 9
		default:
			d.lengths[i] = 7
		}
	}
	build(d.lit[:], litBits, d.lengths[:maxLit], litMeaning)
	for i := range maxDist {
		d.lengths[i] = 5
	}
	build(d.dist[:], distBits, d.lengths[:maxDist], distMeaning)
	d.fixed = true
}

// dynamicCodes reads the codes at the beginning of a block.
func (d *Inflater) dynamicCodes() error {
	d.fixed = false
	v, err := d.take(14)
	if err != nil {
		return err
	}
	numLit, numDist, n := int(v&31+257), int(v>>5&31+1), int(v>>10+4)
	if numLit > 286 || numDist > 30 {
		return corrupt("too many lengths or distances")
	}
	order := [numLengths]uint8{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}
	var lengths [numLengths]uint8
	for _, symbol := range order[:n] {
		v, err := d.take(3)
		if err != nil {
			return err
		}
		lengths[symbol] = uint8(v)
	}
	// The table of distances is unused until its own lengths are known.
	if left, longest := build(d.dist[:], lengthBits, lengths[:], lengthMeaning); left < 0 || left > 0 && longest > 0 {
		return corrupt("code of code lengths")
	}
	if err := d.codeLengths(numLit + numDist); err != nil {
		return err
	}
	if d.lengths[endOfBlock] == 0 {
		return corrupt("block without an end")
	}
	if left, longest := build(d.lit[:], litBits, d.lengths[:numLit], litMeaning); left < 0 || left > 0 && longest != 1 {
		return corrupt("code of literals and lengths")
	}
	left, longest := build(d.dist[:], distBits, d.lengths[numLit:numLit+numDist], distMeaning)
	if left < 0 || left > 0 && longest > 1 {
		return corrupt("code of distances")
	}
	return nil
}

// codeLengths reads the lengths of n codes, by the code in the table of distances.
func (d *Inflater) codeLengths(n int) error {
	for i := 0; i < n; {
		d.refill()
		e := d.dist[d.bits&(1<<lengthBits-1)]
		symbol, err := d.use(e)
		if err != nil {
			return err
		}
		if symbol < 16 {
			d.lengths[i] = uint8(symbol)
			i++
			continue
		}
		var previous uint8
		least, extra := 3, uint(3)
		switch symbol {
		case 16:
			extra = 2
			if i > 0 {
				previous = d.lengths[i-1]
			}
		case 18:
			least, extra = 11, 7
		}
		v, err := d.take(extra)
		if err != nil {
			return err
		}
		repeat := least + int(v)
		if symbol == 16 && i == 0 || i+repeat > n {
			return corrupt("repeated code length")
		}
		for range repeat {
			d.lengths[i] = previous
			i++
		}
	}
	return nil
}

// build builds the table of the canonical code with these lengths (RFC 1951, section 3.2.2). It returns the number of
// unused codes of the greatest length, which is negative if there are too many codes, and the greatest length.
func build(table []entry, width uint, lengths []uint8, mean meaning) (left, longest int) {
	var count, next [maxCodeBits + 2]uint16
	for _, n := range lengths {
		count[n]++
	}
	left = 1
	for n := 1; n <= maxCodeBits; n++ {
		if left = left<<1 - int(count[n]); left < 0 {
			return left, 0
		}
		if count[n] > 0 {
			longest = n
		}
		next[n+1] = next[n] + count[n]
	}
	var sorted [maxLit]uint16 // symbols by the length of their codes
	for symbol, n := range lengths {
		if n > 0 {
			sorted[next[n]] = uint16(symbol)
			next[n]++
		}
	}
	symbols := sorted[:]
	code, filled := 0, 1
	table[0] = special | 1<<8 | 1 // not a code
	for n := 1; n <= int(width); n++ {
		// The bits behind a code can have any value: the table has an entry for each of them.
		filled += copy(table[filled:], table[:filled])
		for _, symbol := range symbols[:count[n]] {
			table[reverse(code, n)] = mean(int(symbol)) + entry(n)<<8 + entry(n)
			code++
		}
		symbols, code = symbols[count[n]:], code<<1
	}
	part, size := filled, 1<<max(longest-int(width), 0)
	prefix := -1
	for n := int(width) + 1; n <= longest; n++ {
		for _, symbol := range symbols[:count[n]] {
			at := reverse(code, n)
			if first := at & (filled - 1); first != prefix {
				if prefix >= 0 {
					part += size
				}
				prefix = first
				table[first] = special | link | entry(part)<<valueShift | entry(longest-int(width))
			}
			for i := at >> width; i < size; i += 1 << (n - int(width)) {
				table[part+i] = mean(int(symbol)) + entry(n)<<8 + entry(n)
			}
			code++
		}
		symbols, code = symbols[count[n]:], code<<1
	}
	return left, longest
}

// reverse returns a code of n bits in the order of the stream: its first bit lowest.
func reverse(code, n int) int { return int(bits.Reverse16(uint16(code)) >> (16 - n)) }
