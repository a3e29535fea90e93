package qemu

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Event is a QMP event, for example SHUTDOWN, RESET, POWERDOWN or BLOCK_IO_ERROR.
type Event struct {
	Name string
	Data json.RawMessage
	Time time.Time
}

// client is a QMP client on one connection. Each line is a JSON object; replies have the id of their command, events
// have none.
type client struct {
	conn     net.Conn
	greeting chan struct{} // closed when QEMU has sent its greeting
	gone     chan struct{} // closed when the connection ends

	mu      sync.Mutex
	next    int
	waiting map[int]chan reply
	log     []Event
	changed chan struct{} // closed and replaced at each event
	ended   bool
}

type reply struct {
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Class string `json:"class"`
		Desc  string `json:"desc"`
	} `json:"error"`
}

var errEnded = errors.New("the machine has ended")

func newClient(conn net.Conn) *client {
	return &client{
		conn: conn, greeting: make(chan struct{}), gone: make(chan struct{}), waiting: map[int]chan reply{},
		changed: make(chan struct{}),
	}
}

// read reads messages until the connection ends.
func (c *client) read() {
	defer c.end()
	in := bufio.NewScanner(c.conn)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		var message struct {
			reply
			QMP       json.RawMessage `json:"QMP"`
			ID        int             `json:"id"`
			Event     string          `json:"event"`
			Data      json.RawMessage `json:"data"`
			Timestamp struct {
				Seconds      int64 `json:"seconds"`
				Microseconds int64 `json:"microseconds"`
			} `json:"timestamp"`
		}
		if err := json.Unmarshal(in.Bytes(), &message); err != nil {
			return // not QMP: the rest of the stream is unusable
		}
		switch {
		case message.QMP != nil:
			close(c.greeting)
		case message.Event != "":
			at := time.Unix(message.Timestamp.Seconds, message.Timestamp.Microseconds*1000)
			c.addEvent(Event{Name: message.Event, Data: message.Data, Time: at})
		default:
			c.answer(message.ID, message.reply)
		}
	}
}

func (c *client) addEvent(e Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log = append(c.log, e)
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *client) answer(id int, r reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if to, ok := c.waiting[id]; ok {
		to <- r
		delete(c.waiting, id)
	}
}

func (c *client) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	close(c.gone)
	for id, to := range c.waiting {
		close(to)
		delete(c.waiting, id)
	}
	close(c.changed)
	c.changed = make(chan struct{})
	_ = c.conn.Close() // no more reads or writes follow
}

// negotiate leaves QMP's negotiation mode, in which no other command is allowed. It waits for QEMU's greeting,
// because QEMU drops earlier input.
func (c *client) negotiate(ctx context.Context) error {
	select {
	case <-c.greeting:
	case <-c.gone:
		return errEnded
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	_, err := c.execute(ctx, "qmp_capabilities", nil)
	return err
}

func (c *client) execute(ctx context.Context, command string, arguments any) (json.RawMessage, error) {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return nil, errEnded
	}
	c.next++
	id, to := c.next, make(chan reply, 1)
	c.waiting[id] = to
	request := map[string]any{"execute": command, "id": id}
	if arguments != nil {
		request["arguments"] = arguments
	}
	err := json.NewEncoder(c.conn).Encode(request)
	c.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", errEnded, err)
	}
	select {
	case r, ok := <-to:
		if !ok {
			return nil, errEnded
		}
		if r.Error != nil {
			return nil, fmt.Errorf("%s: %s", r.Error.Class, r.Error.Desc)
		}
		return r.Return, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (c *client) events(ctx context.Context) <-chan Event {
	out := make(chan Event)
	go func() {
		defer close(out)
		for next := 0; ; {
			c.mu.Lock()
			fresh, ended, changed := c.log[next:], c.ended, c.changed
			c.mu.Unlock()
			for _, e := range fresh {
				select {
				case out <- e:
				case <-ctx.Done():
					return
				}
			}
			next += len(fresh)
			if ended {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}
