// Package clock checks times for plausibility, queries time servers, and sets the system clock and the hardware clock
// (rtc(4)), which the next operating system reads when it starts. The clock is stepped, not slewed: no step of the
// agent depends on it, and what runs for long measures monotonic time.
//
// # Which source may set a clock
//
// Any host on the provisioning network can answer as a DHCP or mDNS server and announce itself as a time server. A
// clock that is set back makes an expired certificate valid again, and the hardware clock keeps its time after the
// deployment. So each source has its own rules:
//
//   - A server of ipa-ntp-server sets both clocks at the start, every hour, and before reboot and power-off.
//   - A server that DHCP or mDNS names sets the system clock only if it is implausible, and the hardware clock never.
//   - Ironic, unverified (http, ipa-insecure), sets the system clock only if it is implausible and no time server has
//     set it, and the hardware clock never.
//   - Ironic, verified by TLS, sets the system clock as above, and also if one of the two sources above has set it; and
//     the hardware clock after the lookup and before reboot and power-off.
//
// A clock is implausible if it shows a time before this program was written or after 2099: a server that was stored for
// long has an empty battery and a clock in 2010. With such a clock no certificate of Ironic is valid yet, and the
// agent's own one has expired for Ironic. The first time can come from any source. Over TLS it must be a time at which
// the certificate of Ironic is valid, so that only Ironic, or a holder of one of its keys, determines it. A plausible
// system clock is kept, with a warning if a verified Ironic has another time, and a certificate that is not valid by it
// is rejected. The header Date has whole seconds, so a hardware clock within two seconds of it is not set. An answer
// with the header Age comes from a cache and is not used.
package clock
