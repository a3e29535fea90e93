package ata

const opTrustedReceive = 0x5c

// TrustedReceive receives data of a security protocol. The length of the buffer is a multiple of 512. Security protocol
// and length are in FEATURE, COUNT and LBA 7:0, SP SPECIFIC in LBA 23:8 (ACS-4, table "TRUSTED RECEIVE command
// inputs"). Linux rejects the command unless the parameter libata.allow_tpm is set.
func (d Drive) TrustedReceive(protocol byte, specific uint16, buffer []byte) ([]byte, error) {
	blocks := uint64(len(buffer) / blockSize)
	_, err := d.run(command{
		name: "TRUSTED RECEIVE", opcode: opTrustedReceive, feature: uint16(protocol),
		lba: uint64(specific)<<8 | blocks>>8&0xff, data: buffer,
	})
	return buffer, err
}
