// Command bare is a minimal /init: it prints one line and waits. The time until this line is the share of kernel and
// machine; everything beyond it is the ramdisk's own share.
package main

import (
	"fmt"
	"time"
)

func main() {
	fmt.Println("BARE-INIT")
	time.Sleep(time.Hour)
}
