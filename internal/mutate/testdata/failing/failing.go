// Package failing has a test that fails.
package failing

func one() int { return 1 }
