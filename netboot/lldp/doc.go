// Package lldp receives frames of the Link Layer Discovery Protocol (IEEE 802.1AB-2016) on all links of a machine in
// parallel and stores the newest frame of each link.
//
// Each link has a packet socket (packet(7)) that is a member of the three multicast groups of the protocol. The kernel
// ends the membership with the socket, so nothing must be restored. A socket can be opened while its link is down, and
// then receives the link's first frame.
//
// Nothing is sent. Limits: at most 1024 links, one frame of at most 9216 bytes per link, and 4 MiB for the frames of
// all links. A frame is kept after its time to live has expired, because it still shows the other end of the cable. It
// is dropped when the neighbour announces its shutdown.
//
// # Frames are received before they are requested
//
// ironic-python-agent starts to listen when LLDP data is requested, and then waits for the next frame of the switch,
// which can take half a minute. Here each link is listened to as soon as it exists, so that most frames have arrived
// before the request. The wait for a frame starts with the carrier of the link. A link that has been silent for longer
// than the timeout is not waited for.
//
// # LLDP agents in network cards
//
// Instances can depend on the agent in the firmware of a card (DCB, storage networks). It is therefore switched off
// only for collect_lldp and the collector lldp, and not for VLAN interfaces by LLDP alone, as in ironic-python-agent.
// The private flags of the driver are tried first, because kernel lockdown under Secure Boot forbids debugfs.
// standby.sync restores only settings that a card keeps over a power cycle: the flag of an X710 resets the port, and
// the answer to the request would wait for the link.
package lldp
