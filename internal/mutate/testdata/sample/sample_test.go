package sample

import (
	"log/slog"
	"os"
	"os/exec"
	"testing"
)

func TestMain(m *testing.M) {
	if os.Args[0] == "child" {
		os.Exit(exitStatus(true))
	}
	os.Exit(m.Run())
}

// The child has an environment of its own.
func TestChild(t *testing.T) {
	child := exec.Command("/proc/self/exe")
	child.Args, child.Env = []string{"child"}, []string{"A=B"}
	if out, err := child.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestAdd(t *testing.T) {
	c := &counter{log: slog.New(slog.DiscardHandler)}
	if err := c.add([]int{1, -5, 2}, 10); err != nil || c.n != 4 {
		t.Errorf("got %d, %v, want 4", c.n, err)
	}
	if err := c.add([]int{11}, 10); err == nil {
		t.Error("got no error for a large value")
	}
}

func TestSend(t *testing.T) {
	values := make(chan int)
	send(values, []int{1, 2})
	if got := receive(values); got != 3 {
		t.Errorf("got %d, want 3", got)
	}
}

func TestUpper(t *testing.T) { upper("a") }
