package inflate

// manyLiterals is the number of consecutive literals from which on two streams are decompressed at once.
const manyLiterals = 32

// Pair decompresses two streams at once. That is faster than one after the other if they contain many literals: each
// look-up in a table depends on the one before, but not on the other stream's, so the processor runs them in parallel.
// It is not safe for concurrent use. The zero value is ready.
type Pair struct {
	Inflater
	other Inflater
}

// FillTwo is Fill for each of two streams.
func (p *Pair) FillTwo(out, stream [2][]byte) (n [2]int, err [2]error) {
	a, b := &p.Inflater, &p.other
	a.begin(out[0], stream[0])
	b.begin(out[1], stream[1])
	for more := true; more; {
		var pausedA, pausedB bool
		if pausedA, err[0] = a.run(true); pausedA {
			pausedB, err[1] = b.run(true)
		}
		if more = pausedA && pausedB; more {
			literals(a, b)
		} else if pausedA {
			_, err[0] = a.run(false)
		} else {
			_, err[1] = b.run(false)
		}
	}
	n[0], err[0] = a.finish(err[0])
	n[1], err[1] = b.finish(err[1])
	return n, err
}

// literals decompresses literals with short codes while both streams have them.
func literals(x, y *Inflater) {
	inX, outX, posX, nX, bX, countX := x.in, x.out, x.pos, x.n, x.bits, x.count
	inY, outY, posY, nY, bY, countY := y.in, y.out, y.pos, y.n, y.bits, y.count
round:
	for posX <= len(inX)-fastIn && nX <= len(outX)-fastOut && posY <= len(inY)-fastIn && nY <= len(outY)-fastOut {
		bX |= load64(inX, posX) << (countX & 63)
		posX += int(63-countX) >> 3
		countX |= 56
		bY |= load64(inY, posY) << (countY & 63)
		posY += int(63-countY) >> 3
		countY |= 56
		for range fastLiterals {
			eX, eY := x.lit[bX&(1<<litBits-1)], y.lit[bY&(1<<litBits-1)]
			if eX&eY&literal == 0 {
				break round
			}
			bX >>= eX & 63
			countX -= uint(eX & 63)
			outX[nX] = byte(eX >> valueShift)
			nX++
			bY >>= eY & 63
			countY -= uint(eY & 63)
			outY[nY] = byte(eY >> valueShift)
			nY++
		}
	}
	x.pos, x.n, x.bits, x.count = posX, nX, bX, countX
	y.pos, y.n, y.bits, y.count = posY, nY, bY, countY
}
