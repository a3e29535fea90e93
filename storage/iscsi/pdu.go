package iscsi

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
)

// Operation codes (RFC 7143, 11.2.1.2).
const (
	opImmediate      = 0x40
	opLoginRequest   = 0x03
	opLogoutRequest  = 0x06
	opLoginResponse  = 0x23
	opLogoutResponse = 0x26
	opAsync          = 0x32
)

const (
	headerSize = 48
	// maxLoginData limits the data segment of a PDU before parameters are negotiated (RFC 7143, 13.12).
	maxLoginData = 8192
	// maxText limits the text of a response that a target sends in several PDUs.
	maxText = 64 << 10
)

// Stages of the login (RFC 7143, 11.12.3).
const (
	stageSecurity    = 0
	stageOperational = 1
	stageFullFeature = 3
)

// Bits of a login PDU (RFC 7143, 11.12).
const (
	flagTransit  = 0x80
	flagContinue = 0x40
)

// header is the basic header segment of a PDU.
type header [headerSize]byte

// pdus sends and receives PDUs. It computes padding, and the kernel sets the initiator task tag and CmdSN.
type pdus interface {
	send(ctx context.Context, h header, data []byte) error
	receive(ctx context.Context) (header, []byte, error)
}

// loginRequest is a Login Request (RFC 7143, 11.12).
type loginRequest struct {
	stage, next byte // next is the requested stage; only with transit
	transit     bool
	isid        [6]byte
	expStatSN   uint32
	data        []byte
}

func (r loginRequest) header() header {
	var h header
	h[0] = opImmediate | opLoginRequest
	h[1] = r.stage << 2
	if r.transit {
		h[1] |= flagTransit | r.next
	}
	putLength(&h, len(r.data))
	copy(h[8:14], r.isid[:])
	binary.BigEndian.PutUint32(h[28:], r.expStatSN)
	return h
}

// loginResponse is a Login Response (RFC 7143, 11.13).
type loginResponse struct {
	stage, next      byte
	transit, partial bool
	statSN           uint32
	class, detail    byte
	data             []byte
}

// parseLoginResponse parses a response. It ignores the ISID, which Debian's target leaves empty.
func parseLoginResponse(h header, data []byte) (loginResponse, error) {
	if op := h[0] & 0x3f; op != opLoginResponse {
		return loginResponse{}, fmt.Errorf("got PDU with operation code 0x%02x, want 0x%02x", op, opLoginResponse)
	}
	if h[3] != 0 {
		return loginResponse{}, fmt.Errorf("got version %d of the protocol, want 0", h[3])
	}
	r := loginResponse{
		stage: h[1] >> 2 & 3, next: h[1] & 3, transit: h[1]&flagTransit != 0, partial: h[1]&flagContinue != 0,
		statSN: binary.BigEndian.Uint32(h[24:]), class: h[36], detail: h[37],
	}
	length := dataLength(h)
	if length > maxLoginData || length > len(data) {
		return loginResponse{}, fmt.Errorf("got %d bytes of a data segment of %d", len(data), length)
	}
	r.data = data[:length]
	if r.partial && r.transit {
		return loginResponse{}, errors.New("got the flags C and T together")
	}
	return r, nil
}

func putLength(h *header, length int) {
	h[5], h[6], h[7] = byte(length>>16), byte(length>>8), byte(length)
}

func dataLength(h header) int { return int(h[5])<<16 | int(h[6])<<8 | int(h[7]) }
