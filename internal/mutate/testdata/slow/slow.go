// Package slow has a test that takes as long as the environment says.
package slow

func add(n int) int {
	n++
	return n
}
