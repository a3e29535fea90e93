//go:build linux

// Package bmcuser is an example of a hardware manager of an operator. It has one step, which creates a user of the
// machine's baseboard management controller (BMC) through the kernel's IPMI driver, without a network.
//
//	ironroot image --manager docs/examples/bmcuser
//
// The commands are defined by the IPMI specification 2.0, revision 1.1, sections 22.26 to 22.30.
package bmcuser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/u-root/u-root/pkg/ipmi"

	"ironroot/agent/hardware"
	"ironroot/agent/node"
)

// New creates the manager. ironroot image calls it in the /init that it generates.
func New(m hardware.Machine) hardware.Manager { return &manager{Machine: m} }

// manager is the hardware manager.
type manager struct {
	hardware.Machine
	bmc bmc // of tests; nil is the machine's
}

// Class is the name under which Ironic lists the steps.
func (*manager) Class() string { return "BMCUserHardwareManager" }

// Name is the manager's name in the version dictionary.
func (*manager) Name() string { return "bmc_user" }

// Version is raised with every change of the steps.
func (*manager) Version() string { return "1" }

// Support returns the same level for all machines. On one without a BMC the step fails.
func (*manager) Support(context.Context) hardware.Level { return hardware.Mainline }

// Steps implements [hardware.Stepper].
func (m *manager) Steps(kind hardware.Kind, _ *node.Node, _ []map[string]any) []hardware.Step {
	if kind != hardware.Clean && kind != hardware.Service {
		return nil
	}
	no := false
	return []hardware.Step{{
		Name: "create_bmc_user", Interface: "deploy", Abortable: &no, Run: m.create,
		ArgsInfo: map[string]hardware.ArgInfo{
			"id":        {Description: "Number of the user, from 2.", Required: true},
			"name":      {Description: "Name, at most 16 bytes.", Required: true},
			"password":  {Description: "Password, 1 to 20 bytes.", Required: true},
			"channel":   {Description: "Number of the LAN channel; the default is 1."},
			"privilege": {Description: "callback, user, operator (the default) or administrator."},
		},
	}}
}

// user is the step's arguments.
type user struct {
	ID        byte   `json:"id"`
	Name      string `json:"name"`
	Password  string `json:"password"`
	Channel   byte   `json:"channel"`
	Privilege string `json:"privilege"`
}

var privileges = map[string]byte{"callback": 1, "user": 2, "operator": 3, "administrator": 4}

// parse returns the arguments of a call. It rejects unknown ones.
func parse(args map[string]json.RawMessage) (user, error) {
	u := user{Channel: 1, Privilege: "operator"}
	text, err := json.Marshal(args)
	if err != nil {
		return u, err
	}
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&u); err != nil {
		return u, fmt.Errorf("arguments: %w", err)
	}
	switch {
	case u.ID < 2 || u.ID > 63:
		return u, fmt.Errorf("id %d: want 2 to 63", u.ID)
	case u.Name == "" || len(u.Name) > 16:
		return u, fmt.Errorf("name %q: want 1 to 16 bytes", u.Name)
	case u.Password == "" || len(u.Password) > 20:
		return u, errors.New("password: want 1 to 20 bytes")
	case u.Channel < 1 || u.Channel > 15:
		return u, fmt.Errorf("channel %d: want 1 to 15", u.Channel)
	case privileges[u.Privilege] == 0:
		return u, fmt.Errorf("privilege %q: want callback, user, operator or administrator", u.Privilege)
	}
	return u, nil
}

// create is the step create_bmc_user. It does not change a user of another name.
func (m *manager) create(ctx context.Context, call hardware.Call) (any, error) {
	u, err := parse(call.Args)
	if err != nil {
		return nil, err
	}
	device, err := m.open()
	if err != nil {
		return nil, fmt.Errorf("open BMC: %w", err)
	}
	defer device.Close() //nolint:errcheck // every request was answered
	if err := u.apply(ctx, device); err != nil {
		return nil, fmt.Errorf("create BMC user %d: %w", u.ID, err)
	}
	m.Log.Info("BMC user created", "id", u.ID, "user", u.Name)
	return map[string]any{"id": u.ID, "name": u.Name}, nil
}

// The commands of the network function App.
const (
	app             = 0x06
	setUserAccess   = 0x43
	setUserName     = 0x45
	getUserName     = 0x46
	setUserPassword = 0x47
)

// noName is the answer of some BMCs to getUserName if the user has no name: invalid data field in request.
const noName = ipmi.CompletionError(0xcc)

// Operations of setUserPassword, and its flag for a password of 20 bytes.
const (
	enableUser   = 1
	setPassword  = 2
	testPassword = 3
	longPassword = 0x80
)

// Bits of the first byte of setUserAccess, whose lower half is the channel.
const (
	changeAccess  = 0x80 // change the bits below; otherwise only the privilege is changed
	ipmiMessaging = 0x10 // the user can send IPMI messages
)

// apply creates the user and tests its password.
func (u user) apply(ctx context.Context, device bmc) error {
	const nameSize, passwordSize = 16, 20
	var name [nameSize]byte
	copy(name[:], u.Name)
	var password [passwordSize]byte
	copy(password[:], u.Password)

	answer, err := device.SendRecv(app, getUserName, []byte{u.ID})
	if err != nil && !errors.Is(err, noName) {
		return fmt.Errorf("get name: %w", err)
	}
	if len(answer) > 0 {
		answer = answer[1:] // completion code
	}
	if found := strings.TrimRight(string(answer), "\x00"); found != "" && found != u.Name {
		return fmt.Errorf("got name %q, want none or %q", found, u.Name)
	}
	for _, request := range []struct {
		what    string
		command byte
		data    []byte
	}{
		{"set name", setUserName, append([]byte{u.ID}, name[:]...)},
		{"set password", setUserPassword, append([]byte{longPassword | u.ID, setPassword}, password[:]...)},
		{"set access", setUserAccess, []byte{changeAccess | ipmiMessaging | u.Channel, u.ID, privileges[u.Privilege]}},
		{"enable", setUserPassword, []byte{u.ID, enableUser}},
		{"test password", setUserPassword, append([]byte{longPassword | u.ID, testPassword}, password[:]...)},
	} {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := device.SendRecv(app, ipmi.Command(request.command), request.data); err != nil {
			return fmt.Errorf("%s: %w", request.what, err)
		}
	}
	return nil
}

// bmc is a connection to the BMC.
type bmc interface {
	SendRecv(function ipmi.NetFn, command ipmi.Command, data []byte) ([]byte, error)
	Close() error
}

// open connects to the first BMC.
func (m *manager) open() (bmc, error) {
	if m.bmc != nil {
		return m.bmc, nil
	}
	return ipmi.Open(0)
}
