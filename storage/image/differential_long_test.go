//go:build long

package image

import "testing"

// More images than in TestDifferential, of other seeds.
func TestDifferentialLong(t *testing.T) { differential(t, differentialImages, 300) }
