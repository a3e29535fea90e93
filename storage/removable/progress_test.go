package removable

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"ironroot/internal/test/testenv"
	"ironroot/internal/timelimit"
	"ironroot/storage/block"
	"ironroot/storage/sysfs"
)

// Opening many slow media exceeds no limit without progress.
func TestVolumesProgress(t *testing.T) {
	root := t.TempDir()
	const count = 3
	for i := range count {
		bus := fmt.Sprintf("pci0000:00/ata%d/host1/target1:0:0/1:0:0:0", i+1)
		plug(t, root, fmt.Sprintf("sr%d", i), bus, "5", testenv.SparseFile(t, 1<<20), 1<<20)
	}
	synctest.Test(t, func(t *testing.T) {
		limits := timelimit.Limits{NoProgress: 20 * time.Second, Grace: time.Second}
		problems, err := timelimit.Do(t.Context(), limits, func(ctx context.Context) ([]*Problem, error) {
			_, problems, err := volumes(ctx, sysfs.Root{Path: root}, block.IsVirtualMedia, func(*Volume) error {
				time.Sleep(15 * time.Second)
				return errors.New("no file system")
			})
			return problems, errors.Join(err, ctx.Err())
		})
		if err != nil || len(problems) != count {
			t.Errorf("got problems %v and %v, want %d without an error", problems, err, count)
		}
	})
}
