package agent

import (
	"log/slog"

	"ironroot/agent/status"
)

// Board receives the state of the agent, to be shown on a screen. *status.Board implements it. All methods are safe for
// concurrent use.
type Board interface {
	NodeBoard
	IronicBoard
	WorkBoard
}

// NodeBoard receives the state of this node.
type NodeBoard interface {
	Enter(phase status.Phase)         // a phase of the start begins
	Node(uuid, name string)           // the lookup found the node
	Problem(source string, err error) // a component failed; nil means that it works again
}

// IronicBoard receives the results of requests to Ironic, and describes the latest long command for it.
type IronicBoard interface {
	Ironic(urls []string)        // the URLs that will be tried
	Tried(url string, err error) // a request ended; nil means that the server responded
	HeartbeatDone(err error)     // a heartbeat ended
	Summary() string             // one line about the latest long command, for Ironic
	Changed() <-chan struct{}    // closed at the next change of anything
}

// WorkBoard receives the commands that Ironic sent, and the progress of long work.
type WorkBoard interface {
	Begin(name, step string) // a command begins; step can be ""
	End(err error)           // the command ended
	Track(log *slog.Logger, what, device string) *status.Tracker
	TrackAside(log *slog.Logger, what, device string) *status.Tracker // does not count for the command's progress
	Plan(items []status.Item) *status.Plan                            // of the running command
}
