package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"time"

	"ironroot/agent/api"
	"ironroot/agent/command"
	"ironroot/agent/config"
	"ironroot/agent/inspection"
	"ironroot/agent/ironic"
	"ironroot/agent/token"
	"ironroot/internal/pause"
)

const (
	// These limit waits for drivers. An inspection must see all devices. A lookup must see the network card that Ironic
	// knows, which is not necessarily among the first ones. Custom managers return their support level only once, and
	// it can depend on any device.
	inspectionSettleTimeout = 60 * time.Second
	lookupSettleTimeout     = 10 * time.Second
	managersSettleTimeout   = 60 * time.Second
)

// errLocked means that another agent holds the node's token: the API must not be served.
var errLocked = errors.New("ironic handed this node's token to another agent")

// waitNetwork waits for an address if Ironic or an inspection needs the network. The status report shows what is
// missing.
func (a *agent) waitNetwork(ctx context.Context) error {
	if a.o.Machine.Network == nil ||
		(!a.withIronic() && !inspection.Enabled(a.config.Get()) && !ironic.WantsDiscovery(a.config.Get())) {
		return nil
	}
	return a.o.Machine.Network.WaitAddress(ctx)
}

// discover finds Ironic by multicast DNS if that is configured.
func (a *agent) discover(ctx context.Context) error {
	if a.ironic == nil {
		return nil
	}
	err := a.ironic.Discover(ctx)
	a.o.Board.Ironic(a.config.Get().APIURLs())
	return err
}

// inspect runs an inspection if one is configured. Failure is not fatal: Ironic receives the error and decides.
func (a *agent) inspect(ctx context.Context) error {
	if a.ironic == nil || !inspection.Enabled(a.config.Get()) {
		a.notInspected = "inspection is disabled"
		return nil
	}
	a.settle(ctx, inspectionSettleTimeout)
	uuid, err := a.runInspection(ctx)
	a.inspectedUUID, a.notInspected = uuid, ""
	a.o.Board.Problem("inspection", err)
	if err != nil {
		a.notInspected = fmt.Sprintf("the inspection failed: %v", err)
		a.log.Error("inspection failed, continuing with the lookup", "err", err)
	}
	return ctx.Err()
}

func (a *agent) runInspection(ctx context.Context) (nodeUUID string, err error) {
	o := inspection.Options{
		Config: a.config, Inventory: a.inventory, Journal: a.o.Journal, Managers: a.managers.Load(), System: a.o.System,
		Imager: a.imager, Ironic: a.ironic, Log: a.log, Neighbours: a.neighbours(),
		Board: a.o.Board,
	}
	if a.o.Machine.Network != nil {
		o.Network = a.o.Machine.Network
	}
	return inspection.Run(ctx, o)
}

// settle waits until the drivers of all devices present at boot are loaded, or until limit has passed.
func (a *agent) settle(ctx context.Context, limit time.Duration) {
	a.o.Machine.Drivers.Resume()
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := pause.Until(limited, a.o.Machine.Drivers.Settled()); err != nil && ctx.Err() == nil {
		a.log.Warn("drivers still loading, continuing", "waited", limit)
	}
}

// findNode looks the node up, and returns the MAC addresses sent, too. While drivers are still being loaded it
// first asks once with the cards known so far, so that a slow driver of a storage adapter delays nothing. It asks again
// with all cards, because the one that Ironic knows can be among those that were missing. It never cancels a request in
// progress: Ironic sends a token only once.
func (a *agent) findNode(ctx context.Context) (*ironic.Answer, []string, error) {
	deadline := time.Now().Add(lookupSettleTimeout)
	if !pause.Closed(a.o.Machine.Drivers.Settled()) {
		macs, err := a.macs(ctx)
		if err != nil {
			return nil, nil, err
		}
		if len(macs) > 0 {
			answer, err := a.ironic.TryLookup(ctx, macs, a.inspectedUUID, a.notInspected)
			if err == nil {
				return answer, macs, nil
			}
			a.log.Info("node not found yet, waiting for the drivers of all network cards", "tried_macs", len(macs),
				"err", err)
		}
		a.settle(ctx, time.Until(deadline))
	}
	macs, err := a.macs(ctx)
	if err != nil {
		return nil, nil, err
	}
	answer, err := a.ironic.Lookup(ctx, macs, a.inspectedUUID, a.notInspected)
	return answer, macs, err
}

// lookup looks the node up in Ironic and applies the response.
func (a *agent) lookup(ctx context.Context) error {
	if !a.withIronic() {
		if a.ironic != nil {
			a.log.Error("no URL of Ironic: agent sends no heartbeats, and its API needs a preset token; "+
				"set ipa-api-url to a URL, or to mdns to discover one", "api_url", a.config.Get().APIURL)
		}
		return nil
	}
	answer, macs, err := a.findNode(ctx)
	if err != nil {
		return err
	}
	a.lookupMACs = macs
	a.checkClocks()
	outcome := a.apply(answer, a.inspectedUUID)
	a.warnOptions()
	a.answer = answer
	a.o.Board.Node(answer.Node.UUID(), answer.Node.Name())
	a.log.Info("node found", "tried_macs", len(macs), "node", answer.Node.UUID(), "token", outcome)
	if outcome == token.Locked {
		a.log.Error("Ironic has handed this node's token to another agent; restart the node to reset the token",
			"node", answer.Node.UUID())
		return errLocked
	}
	return nil
}

// apply stores the token, the node and the configuration of a lookup response. inspected is the UUID that the
// inspection returned, "" without one. The token is registered for redaction before any value of the response can be
// logged.
func (a *agent) apply(answer *ironic.Answer, inspected string) token.Outcome {
	outcome := answer.AdoptToken(&a.token, &a.node, inspected, a.log)
	a.o.Journal.Redact(a.token.Reveal())
	if a.token.Waive(answer.Passthru); answer.Passthru && !a.token.Known() {
		a.log.Warn("Ironic knows no agent tokens: the API accepts commands of any host that reaches it",
			"node", answer.Node.UUID())
	}
	answer.Apply(a.config, &a.node, a.log)
	return outcome
}

func (a *agent) macs(ctx context.Context) ([]string, error) {
	interfaces, err := a.inventory.Interfaces(ctx)
	if err != nil {
		return nil, err
	}
	var macs []string
	for _, i := range interfaces {
		if i.MACAddress != "" {
			macs = append(macs, i.MACAddress)
		}
	}
	return macs, nil
}

// Refresh implements [imaging.NodeRefresher]: it looks the node up again, by the MAC addresses of the first lookup. It
// stores only the fields of the response's node, neither token nor configuration.
func (a *agent) Refresh(ctx context.Context) error {
	known := a.node.Get()
	if !a.withIronic() || known == nil {
		return errors.New("look up node: agent runs without Ironic")
	}
	answer, err := a.ironic.Lookup(ctx, a.lookupMACs, known.UUID(), "")
	if err != nil {
		return err
	}
	a.node.Set(a.node.Get().Refreshed(answer.Node))
	return nil
}

// renewToken looks the node up once, and stores the token and the node of the response. Ironic forgets the token of a
// ramdisk when an operation is aborted or fails. If the node is deployed again by fast track, Ironic waits for
// heartbeats of the same ramdisk, and issues another token.
//
// With the other token begins another session: the running command is cancelled, and the list of commands starts again.
// Otherwise Ironic would take the commands of the former session for its own, and the former deployment would write to
// the disk of the new one. Until that command has ended, no heartbeat is sent, because an accepted one makes Ironic
// send commands. A command continues as long as Ironic issues no other token.
func (a *agent) renewToken(ctx context.Context) {
	uuid := a.node.Get().UUID()
	answer, err := a.ironic.TryLookup(ctx, a.lookupMACs, uuid, "")
	if err == nil && answer.Node.UUID() != uuid {
		err = fmt.Errorf("look up node: got node %s, want %s", answer.Node.UUID(), uuid)
	}
	if err != nil {
		a.log.Warn("token refused, and no other one received", "node", uuid, "err", err)
		return
	}
	former := a.token.Reveal()
	outcome := answer.AdoptToken(&a.token, &a.node, a.inspectedUUID, a.log)
	a.o.Journal.Redact(a.token.Reveal())
	a.node.Set(a.node.Get().Refreshed(answer.Node))
	a.log.Info("token refused, node looked up again", "node", uuid, "token", outcome)
	if outcome == token.Adopted && a.token.Reveal() != former {
		a.resetCommands(ctx)
	}
}

// resetCommands cancels the running command, empties the list of commands and ends the export of the root disk, for
// another session of Ironic.
func (a *agent) resetCommands(ctx context.Context) {
	if records := a.commands.List(); len(records) > 0 && records[len(records)-1].Status == command.Running {
		a.log.Warn("Ironic started another session, cancelling the running command",
			"command", records[len(records)-1].Name)
	}
	if err := a.commands.Reset(ctx); err != nil {
		a.log.Warn("list of commands not emptied", "err", err)
	}
	a.endExport(ctx)
}

// findAddress determines the callback address, once per process: Ironic rejects an agent whose address changes, and the
// certificate contains it.
func (a *agent) findAddress(ctx context.Context) error {
	if !a.withIronic() || a.endpoint.Host != "" {
		return nil
	}
	endpoint, err := a.ironic.Advertise(ctx)
	if err != nil {
		return err
	}
	a.endpoint = endpoint
	return nil
}

// listen opens the API. It must precede the first heartbeat.
func (a *agent) listen(ctx context.Context) error {
	settings, err := a.tlsSettings(ctx)
	if err != nil {
		return err
	}
	a.apiIronic.Store(nil)
	if a.withIronic() {
		a.apiIronic.Store(a.ironic)
	}
	c := a.config.Get()
	if a.server != nil { // left by a panic
		a.stopServer(ctx)
	}
	l, err := a.o.Ports.Listen(ctx, c.ListenHost, c.ListenPort)
	if err != nil {
		return err
	}
	a.server = api.Serve(l, a.api, settings)
	a.log.Info("API listening", "address", l.Addr(), "tls", settings != nil)
	return nil
}

// ReadsWithoutToken implements [api.TokenRules]. Ironic's version can become known after the API was opened.
func (a *agent) ReadsWithoutToken() bool {
	client := a.apiIronic.Load()
	return client != nil && client.ReadsWithoutToken()
}

// tlsSettings returns the TLS settings with the operator's certificate, with a generated one, or nil for plain HTTP. It
// runs after the lookup, which can change the options.
func (a *agent) tlsSettings(ctx context.Context) (*tls.Config, error) {
	c := a.config.Get()
	suites := c.CipherSuites()
	switch {
	case c.TLSCertFile != "" && c.TLSKeyFile != "":
		pair, err := tls.LoadX509KeyPair(c.TLSCertFile, c.TLSKeyFile)
		if err != nil {
			return nil, fmt.Errorf("load API certificate: %w", err)
		}
		if c.AdvertiseProtocol != "https" {
			a.log.Warn("API uses TLS but is advertised as http; set advertise_protocol to https")
		}
		return api.TLSSettings(pair, c.TLSVersion(), suites), nil
	case c.ListenTLS:
		return nil, errors.New("listen_tls needs tls_cert_file and tls_key_file")
	case !c.EnableAutoTLS || !a.withIronic():
		return nil, nil
	case !a.ironic.APIVersion(ctx).AtLeast(ironic.AutoTLS()):
		a.log.Warn("Ironic does not support agent certificates, API uses no TLS")
		return nil, nil
	}
	if a.certificate == nil {
		made, err := a.newCertificate(c)
		if err != nil {
			return nil, err
		}
		a.certificate = made
	}
	a.config.Update(func(c *config.Config) { c.AdvertiseProtocol = "https" })
	return api.TLSSettings(a.certificate.TLS, c.TLSVersion(), suites), nil
}

func (a *agent) newCertificate(c *config.Config) (*api.Certificate, error) {
	name, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("get host name: %w", err)
	}
	return api.NewCertificate(api.CertificateOptions{
		CommonName: name, Host: a.endpoint.Host, Curve: c.TLSCertificateCurve, Skew: c.AutoTLSAllowedClockSkew,
		Lifetime: c.AutoTLSLifetime, Now: time.Now(),
	})
}

// CallbackURL implements [ironic.Agent].
func (a *agent) CallbackURL() string {
	return a.endpoint.URL(a.config.Get().AdvertiseProtocol)
}
