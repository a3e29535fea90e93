// Command installer stands for a program of an image: it says what it can see.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	switch args[0] {
	case "fail":
		fmt.Println(strings.Repeat("long text\n", 10000) + "disk is on fire")
		return 3
	case "hang":
		fmt.Println("hanging")
		time.Sleep(time.Hour)
	}
	processes, _ := filepath.Glob("/proc/[0-9]*")
	interfaces, _ := os.ReadFile("/proc/net/dev") // two lines of titles, one for each
	_, outside := os.Stat("/etc/shadow")
	_, null := os.Stat("/dev/null")
	_, sys := os.Stat("/sys/block")
	names, _ := filepath.Glob("/dev/disk/by-uuid/*")
	report := fmt.Sprintf("pid %d, %d processes, %d interfaces, argument %s, variable %s, outside %t, null %t, sys %t, %d names by UUID",
		os.Getpid(), len(processes), strings.Count(string(interfaces), "\n")-2, args[0], os.Getenv("VARIABLE"), outside == nil, null == nil, sys == nil, len(names))
	if err := os.WriteFile("/etc/"+filepath.Base(os.Args[0]), []byte(report), 0o644); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}
