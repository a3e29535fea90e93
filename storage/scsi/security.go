package scsi

import "encoding/binary"

const opSecurityIn = 0xa2

// SecurityReceive receives data of a security protocol by SECURITY PROTOCOL IN (SPC-5, table "SECURITY PROTOCOL IN
// command"), and returns the bytes that were received. INC_512 is zero: the allocation length counts bytes. Linux
// translates the command for ATA drives that report Trusted Computing in their log Identify Device Data. The error is a
// [CommandError] if the disk does not support the command.
func (d Disk) SecurityReceive(protocol byte, specific uint16, buffer []byte) ([]byte, error) {
	cdb := make([]byte, 12)
	cdb[0], cdb[1] = opSecurityIn, protocol
	binary.BigEndian.PutUint16(cdb[2:], specific)
	binary.BigEndian.PutUint32(cdb[6:], uint32(len(buffer)))
	return d.run(command{name: "SECURITY PROTOCOL IN", cdb: cdb, data: buffer})
}
