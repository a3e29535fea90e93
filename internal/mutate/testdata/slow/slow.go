// Package slow has a test whose duration the environment sets.
package slow

func add(n int) int {
	n++
	return n
}
