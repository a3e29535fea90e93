// Command lldp prints the switch ports that this machine is connected to.
package main

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net"
	"time"

	"ironroot/netboot/lldp"
)

func main() {
	links, err := net.Interfaces()
	if err != nil {
		log.Fatal(err)
	}
	listener := lldp.New(slog.Default())
	defer listener.Close()
	for _, link := range links {
		if link.Flags&net.FlagLoopback == 0 {
			listener.Open(link.Index, link.Name)
			listener.Expect(link.Index, link.Flags&net.FlagRunning != 0)
		}
	}
	// Switches send a frame every 30 seconds.
	frames, err := listener.Wait(context.Background(), 35*time.Second)
	if err != nil {
		log.Println(err)
	}
	for name, frame := range frames {
		if neighbour := frame.Neighbour(); frame.Complete {
			fmt.Println(name, neighbour.System, neighbour.Port, frame.VLANs())
		}
	}
}
