// Command dhcp requests an IPv4 address for an interface and prints the lease. It configures nothing.
//
//	dhcp eth0
package main

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net"
	"os"
	"time"

	"ironroot/netboot/dhcp"
	"ironroot/netboot/dhcp4"
)

// printer is the handler of the client. It ends the program after the first lease.
type printer struct {
	link *net.Interface
	done context.CancelFunc
}

// Interface returns the present state of the interface.
func (p printer) Interface() *net.Interface { return p.link }

// Use is called with each lease. A program that keeps its address applies it here, and returns an error if it cannot.
func (p printer) Use(lease *dhcp4.Lease, renewed bool) error {
	fmt.Println("address", lease.Address, "router", lease.Router(), "servers", lease.DNS, "renewed", renewed)
	p.done()
	return nil
}

// Drop is called when the lease has ended.
func (printer) Drop() {}

// Sent, Rejected and Failed report the progress.
func (printer) Sent(time.Time)                   {}
func (printer) Rejected(cause error)             { log.Println("answer rejected:", cause) }
func (printer) Failed(message string, err error) { log.Println(message, err) }

func main() {
	if len(os.Args) != 2 {
		log.Fatal("want the name of an interface")
	}
	link, err := net.InterfaceByName(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	p := printer{link, cancel}
	dhcp4.New(dhcp4.Config{Link: p, Timing: dhcp.DefaultTiming, Log: slog.Default(), Handler: p}).Run(ctx)
}
