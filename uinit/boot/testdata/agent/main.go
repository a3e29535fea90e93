// Command agent is a ramdisk with the real agent. It panics twice: in the goroutine of the first connection to Ironic,
// and in the agent's goroutine when the first lookup begins.
package main

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"ironroot/agent"
	"ironroot/agent/status"
	"ironroot/uinit/boot"
)

// board panics when the first lookup begins.
type board struct {
	agent.Board
	lookups *atomic.Int32
}

func (b board) Enter(phase status.Phase) {
	if phase == status.Lookup && b.lookups.Add(1) == 1 {
		panic("the agent exploded")
	}
	b.Board.Enter(phase)
}

func main() {
	var lookups, dials atomic.Int32
	work := boot.AgentWith(func(o *agent.Options) {
		o.Pause = time.Second
		o.Board = board{o.Board, &lookups}
		dial := o.Dial
		o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if dials.Add(1) == 1 {
				panic("the connection exploded")
			}
			return dial(ctx, network, address)
		}
	})
	boot.Main(work)
}
