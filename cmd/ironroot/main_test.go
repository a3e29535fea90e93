package main

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The commands agent and collect get what follows them as it is: flags that the parser knows, such as --help, and flags
// that no parser knows.
func TestPassthrough(t *testing.T) {
	for _, args := range [][]string{
		nil,
		{"--help"},
		{"-h"},
		{"--no-such-flag", "--x=a,b", "-", ""},
		{"--", "--debug"},
		{"--out", "agent", "collect"},
	} {
		for _, name := range []string{"agent", "collect"} {
			commands := &cli{}
			ctx, err := newParser(commands).Parse(append([]string{name}, args...))
			if err != nil {
				t.Errorf("%s %q: %v", name, args, err)
				continue
			}
			got := map[string][]string{"agent": commands.Agent.Args, "collect": commands.Collect.Args}[name]
			if diff := cmp.Diff(args, got); diff != "" || ctx.Selected().Name != name {
				t.Errorf("%s %q: got command %s with other arguments (-want +got):\n%s",
					name, args, ctx.Selected().Name, diff)
			}
		}
	}
}

// asProgram makes the test's binary the program itself.
const asProgram = "IRONROOT_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}
