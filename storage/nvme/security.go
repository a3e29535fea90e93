package nvme

const opSecurityReceive = 0x82

// SecurityReceive receives data of a security protocol into the buffer, and returns it: SECP in bits 31:24 and SPSP in
// bits 23:8 of dword 10, the length in dword 11. The controller must have [Identity].SecurityCommands. The error is the
// transport's.
func (c Controller) SecurityReceive(protocol byte, specific uint16, buffer []byte) ([]byte, error) {
	return buffer, c.transport.Send(Command{
		Opcode: opSecurityReceive, CDW10: uint32(protocol)<<24 | uint32(specific)<<8, CDW11: uint32(len(buffer)),
		Data: buffer, Timeout: commandTimeout,
	})
}
