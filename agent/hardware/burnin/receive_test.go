package burnin

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"net"
	"slices"
	"testing"
	"time"
)

// stubPartner is a connection on which a partner has sent bytes and closed it.
type stubPartner struct {
	net.Conn
	sent   *bytes.Reader
	answer bytes.Buffer
}

func (p *stubPartner) Read(b []byte) (int, error)  { return p.sent.Read(b) }
func (p *stubPartner) Write(b []byte) (int, error) { return p.answer.Write(b) }
func (p *stubPartner) SetDeadline(time.Time) error { return nil }

// stream returns what a partner sends. Each 17 bytes of script are a header and a byte of flags: 1 for data after the
// header, 2 for a right checksum, 4 for the end of the connection within the data.
func stream(script []byte) (sent []byte) {
	for len(script) > messageHeader {
		message, flags := bytes.Clone(script[:messageHeader]), script[messageHeader]
		if script = script[messageHeader+1:]; flags&1 != 0 {
			message = append(message, make([]byte, messageBytes)...)
		}
		if flags&2 != 0 {
			binary.LittleEndian.PutUint32(message[8:], crc32.Checksum(message[messageHeader:], castagnoli))
		}
		if sent = append(sent, message...); flags&4 != 0 {
			return sent[:len(sent)-1]
		}
	}
	return append(sent, script...)
}

// FuzzReceive receives anything in place of a partner's messages. Data count as received only if complete messages
// were, and only then the partner gets an answer.
func FuzzReceive(f *testing.F) {
	header := func(number byte, length uint32, flags byte) []byte {
		h := make([]byte, messageHeader+1)
		h[0], h[messageHeader] = number, flags
		binary.LittleEndian.PutUint32(h[12:], length)
		return h
	}
	valid := slices.Concat(header(0, messageBytes, 3), header(1, messageBytes, 3), header(2, 0, 2))
	f.Add(valid)
	f.Add(valid[:len(valid)-1])
	f.Add(header(0, 0, 2))
	f.Add(slices.Concat(header(0, messageBytes, 1), header(1, 0, 2)))
	f.Add(slices.Concat(header(0, messageBytes, 3), header(0, messageBytes, 7)))
	f.Add(header(0, 1<<31, 3))
	node := &networkTest{silence: time.Minute, drain: time.Minute}
	honest := &stubPartner{sent: bytes.NewReader(stream(valid))}
	if n, err := node.receiveOn(honest, time.Now().Add(time.Hour)); n != 2*messageBytes || err != nil {
		f.Fatalf("valid messages: got %d bytes and %v, want %d", n, err, 2*messageBytes)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		sent := stream(script[:min(len(script), 8*(messageHeader+1))])
		partner := &stubPartner{sent: bytes.NewReader(sent)}
		received, err := node.receiveOn(partner, time.Now().Add(time.Hour))
		if err != nil {
			if received != 0 || partner.answer.Len() > 0 {
				t.Errorf("got %d bytes, an answer of %d bytes and %v, want none", received, partner.answer.Len(), err)
			}
			return
		}
		count := received / messageBytes
		if received < messageBytes || received%messageBytes != 0 ||
			int64(len(sent)) < count*(messageHeader+messageBytes)+messageHeader ||
			partner.answer.Len() != messageHeader {
			t.Fatalf("got %d bytes of %d and an answer of %d bytes", received, len(sent), partner.answer.Len())
		}
		for number := range count {
			message := sent[number*(messageHeader+messageBytes):][:messageHeader+messageBytes]
			sum := crc32.Checksum(message[messageHeader:], castagnoli)
			if binary.LittleEndian.Uint32(message[8:]) != sum || binary.LittleEndian.Uint64(message) != uint64(number) {
				t.Errorf("message %d was accepted with header % x", number, message[:messageHeader])
			}
		}
	})
}
