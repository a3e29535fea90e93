package slow

import (
	"os"
	"testing"
	"time"
)

// TestAdd kills no mutant.
func TestAdd(_ *testing.T) {
	duration, _ := time.ParseDuration(os.Getenv("TEST_DURATION"))
	time.Sleep(duration)
	add(1)
}
