package main

import (
	"context"
	"fmt"
	"strings"

	"ironroot/agent/softraid"
	"ironroot/internal/test/raidtest"
	"ironroot/storage/sysfs"
)

// cases checks what the tests of other packages rely on, and prints the result of each case.
func cases(ctx context.Context) error {
	sizes := make([]int64, raidtest.CaseDisks)
	for i := range sizes {
		sizes[i] = raidtest.DiskSize
	}
	devices, release, err := members(sizes)
	defer release()
	if err != nil {
		return err
	}
	results := raidtest.Cases(ctx, softraid.NewKernel(sysfs.Root{}), devices)
	for _, r := range results {
		text := "ok"
		if r.Err != nil {
			text = strings.ReplaceAll(r.Err.Error(), "\n", "; ")
		}
		fmt.Printf("\nCASE %q %s\n", r.Name, text)
	}
	fmt.Printf("\nCASES %d\n", len(results))
	return nil
}
