package external

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// checkExecutable reports an error if a file is not an executable of root's that nobody else can write to.
func checkExecutable(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return errors.New("not a regular file")
	case info.Mode()&0o100 == 0:
		return errors.New("not executable")
	case !ok || stat.Uid != 0 || info.Mode()&0o022 != 0:
		return fmt.Errorf("mode %v: others than root can write to it", info.Mode()&fs.ModePerm)
	}
	return nil
}
