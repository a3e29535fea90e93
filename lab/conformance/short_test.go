//go:build linux && !long

package conformance

// playLong is true if TestConformance also plays the scenarios that set long.
const playLong = false
