package slow

import (
	"os"
	"testing"
	"time"
)

// TestAdd kills no mutant.
func TestAdd(t *testing.T) {
	if failure := os.Getenv("TEST_FAILURE"); failure != "" && os.Getenv("MUTANT") == "" {
		t.Fatal(failure)
	}
	duration, _ := time.ParseDuration(os.Getenv("TEST_DURATION"))
	time.Sleep(duration)
	add(1)
}
