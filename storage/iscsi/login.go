package iscsi

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// The values that the initiator offers (RFC 7143, 13). Lengths are bytes.
const (
	maxReceive = 256 << 10
	firstBurst = 256 << 10
	maxBurst   = 16<<20 - 1024
	maxR2T     = 1
	// maxExchanges limits the requests of a login.
	maxExchanges = 16
)

// parameters are the results of a login.
type parameters struct {
	maxSend, firstBurst, maxBurst int // bytes
	initialR2T, immediateData     bool
	maxR2T                        int
	group                         int // tag of the target portal group, -1 if unknown
	expStatSN                     uint32
}

// LoginError is the answer of a target that rejects a login.
type LoginError struct {
	Class, Detail byte
	// Address is the address of another portal to which the target redirects, "" for none.
	Address string
}

// Error implements error.
func (e *LoginError) Error() string {
	text := loginErrors[uint16(e.Class)<<8|uint16(e.Detail)]
	switch {
	case text != "":
	case e.Class == classRedirection:
		text = "target has moved"
	case e.Class == classInitiator:
		text = "initiator error"
	case e.Class == classTarget:
		text = "target error"
	default:
		text = "unknown status"
	}
	return fmt.Sprintf("%s (login status 0x%02x%02x)", text, e.Class, e.Detail)
}

// Permanent reports whether the same login fails again: the target does not know or accept the initiator.
func (e *LoginError) Permanent() bool { return e.Class == classInitiator }

// Status classes (RFC 7143, 11.13.5).
const (
	classRedirection = 1
	classInitiator   = 2
	classTarget      = 3
)

// starting reports whether a target program that starts could have rejected the login: it listens before it has its
// accounts (detail 1), access lists (2) and targets (3).
func (e *LoginError) starting() bool { return e.Detail >= 1 && e.Detail <= 3 }

// loginErrors are the texts of class and detail (RFC 7143, 11.13.5).
var loginErrors = map[uint16]string{
	0x0101: "target has moved for now",
	0x0102: "target has moved for good",
	0x0201: "authentication failed: wrong CHAP name or secret",
	0x0202: "initiator is not allowed to use the target",
	0x0203: "target not found",
	0x0204: "target has been removed",
	0x0205: "unsupported version",
	0x0206: "too many connections",
	0x0207: "missing parameter",
	0x0208: "connection cannot be added to the session",
	0x0209: "session type not supported",
	0x020a: "session does not exist",
	0x020b: "invalid request during login",
	0x0301: "target error",
	0x0302: "target is not available",
	0x0303: "target lacks resources",
}

// login is a login in progress.
type login struct {
	conn      pdus
	target    Target
	chap      chap
	expStatSN uint32
	exchanges int
}

// logIn performs the login phase of a normal session on a new connection.
func logIn(ctx context.Context, conn pdus, target Target) (parameters, error) {
	l := &login{conn: conn, target: target, chap: chap{CHAP: target.CHAP}}
	group, err := l.security(ctx)
	if err != nil {
		return parameters{}, fmt.Errorf("log in to %s: %w", target.Name, err)
	}
	p, err := l.operational(ctx)
	if err != nil {
		return parameters{}, fmt.Errorf("log in to %s: %w", target.Name, err)
	}
	if p.group < 0 {
		p.group = group
	}
	p.expStatSN = l.expStatSN
	return p, nil
}

// security negotiates the authentication, and returns the tag of the target portal group, -1 if unknown.
func (l *login) security(ctx context.Context) (group int, err error) {
	methods := "None"
	switch {
	case l.chap.Name == "" && l.chap.mutual():
		return 0, errors.New("CHAP secret of the target without one of the initiator")
	case l.chap.mutual():
		methods = "CHAP"
	case l.chap.Name != "":
		methods = "CHAP,None"
	}
	// Without a choice the first request already asks for the next stage.
	got, passed, err := l.exchange(ctx, stageSecurity, stageOperational, methods == "None", []pair{
		{"InitiatorName", l.target.Initiator},
		{"SessionType", "Normal"},
		{"TargetName", l.target.Name},
		{"AuthMethod", methods},
	})
	if err != nil {
		return 0, err
	}
	if group, err = number(got, "TargetPortalGroupTag", -1, 0, 0xffff); err != nil {
		return 0, err
	}
	method, found := got["AuthMethod"]
	switch {
	case passed && (!found || method == "None") && methods == "None":
		return group, nil
	case method == "None" && methods != "CHAP" || methods == "None" && !found:
		_, passed, err = l.exchange(ctx, stageSecurity, stageOperational, true, nil)
	case method == "CHAP" && methods != "None":
		passed, err = l.authenticate(ctx)
	default:
		return 0, fmt.Errorf("got AuthMethod=%.40q, want %s", method, methods)
	}
	if err == nil && !passed {
		err = errors.New("target does not end the security negotiation")
	}
	return group, err
}

// authenticate performs CHAP, and reports whether the target has passed to the next stage.
func (l *login) authenticate(ctx context.Context) (passed bool, err error) {
	got, _, err := l.exchange(ctx, stageSecurity, 0, false, []pair{l.chap.offer()})
	if err != nil {
		return false, err
	}
	answer, err := l.chap.answer(got)
	if err != nil {
		return false, err
	}
	if got, passed, err = l.exchange(ctx, stageSecurity, stageOperational, true, answer); err != nil {
		return false, err
	}
	if err := l.chap.verify(got); err != nil || passed {
		return passed, err
	}
	_, passed, err = l.exchange(ctx, stageSecurity, stageOperational, true, nil)
	return passed, err
}

// operational negotiates the parameters of the session.
func (l *login) operational(ctx context.Context) (parameters, error) {
	request := []pair{
		{"HeaderDigest", "None"},
		{"DataDigest", "None"},
		{"ErrorRecoveryLevel", "0"},
		{"InitialR2T", "No"},
		{"ImmediateData", "Yes"},
		{"MaxRecvDataSegmentLength", strconv.Itoa(maxReceive)},
		{"MaxBurstLength", strconv.Itoa(maxBurst)},
		{"FirstBurstLength", strconv.Itoa(firstBurst)},
		{"MaxOutstandingR2T", strconv.Itoa(maxR2T)},
		{"MaxConnections", "1"},
		{"DefaultTime2Wait", "2"},
		{"DefaultTime2Retain", "0"},
		{"DataPDUInOrder", "Yes"},
		{"DataSequenceInOrder", "Yes"},
	}
	offered := map[string]bool{}
	for _, p := range request {
		offered[p.key] = true
	}
	all := map[string]string{}
	for {
		got, passed, err := l.exchange(ctx, stageOperational, stageFullFeature, true, request)
		if err != nil {
			return parameters{}, err
		}
		request = nil
		for key, value := range got {
			all[key] = value
			if !offered[key] && !declared[key] { // the target's own offer, which needs an answer
				request = append(request, pair{key, refusals[key]})
				if refusals[key] == "" {
					request[len(request)-1].value = "NotUnderstood"
				}
				offered[key] = true
			}
		}
		if passed {
			return negotiated(all)
		}
	}
}

// declared are keys of a target that need no answer.
var declared = map[string]bool{
	"TargetPortalGroupTag": true, "TargetAlias": true, "TargetAddress": true, "MaxRecvDataSegmentLength": true,
}

// refusals are the answers to offers of a target that the initiator has not made.
var refusals = map[string]string{"IFMarker": "No", "OFMarker": "No", "TaskReporting": "RFC3720"}

// negotiated returns the parameters that result from the target's answers.
func negotiated(got map[string]string) (p parameters, err error) {
	for key, want := range map[string]string{
		"HeaderDigest": "None", "DataDigest": "None", "ErrorRecoveryLevel": "0",
		"DataPDUInOrder": "Yes", "DataSequenceInOrder": "Yes",
	} {
		if value, found := got[key]; found && value != want {
			return p, fmt.Errorf("got %s=%.40q, want %s", key, value, want)
		}
	}
	const least, most = 512, 1<<24 - 1 // bytes of each length
	for _, n := range []struct {
		key                  string
		missing, least, most int
		to                   *int
	}{
		{"MaxRecvDataSegmentLength", maxLoginData, least, most, &p.maxSend},
		{"MaxBurstLength", 256 << 10, least, most, &p.maxBurst},
		{"FirstBurstLength", 64 << 10, least, most, &p.firstBurst},
		{"MaxOutstandingR2T", 1, 1, 0xffff, &p.maxR2T},
		{"TargetPortalGroupTag", -1, 0, 0xffff, &p.group},
	} {
		if got[n.key] == "Irrelevant" { // FirstBurstLength without unsolicited data
			*n.to = n.missing
		} else if *n.to, err = number(got, n.key, n.missing, n.least, n.most); err != nil {
			return p, err
		}
	}
	// The result is the smaller value of both sides. Some targets answer with their own.
	p.maxBurst, p.maxR2T = min(p.maxBurst, maxBurst), min(p.maxR2T, maxR2T)
	p.firstBurst = min(p.firstBurst, firstBurst, p.maxBurst)
	if p.initialR2T, err = boolean(got, "InitialR2T", true); err != nil {
		return p, err
	}
	p.immediateData, err = boolean(got, "ImmediateData", true)
	return p, err
}

// exchange sends a request and returns the target's answer, and whether it has passed to the requested stage. If the
// target sends its text in parts, exchange asks for the rest.
func (l *login) exchange(
	ctx context.Context, stage, next byte, transit bool, pairs []pair,
) (got map[string]string, passed bool, err error) {
	request := loginRequest{stage: stage, next: next, transit: transit, isid: l.target.isid(), data: encodeText(pairs)}
	if len(request.data) > maxLoginData {
		return nil, false, fmt.Errorf("request of %d bytes, want at most %d", len(request.data), maxLoginData)
	}
	var text []byte
	for {
		if l.exchanges++; l.exchanges > maxExchanges {
			return nil, false, fmt.Errorf("no end after %d requests", maxExchanges)
		}
		request.expStatSN = l.expStatSN
		if err := l.conn.send(ctx, request.header(), request.data); err != nil {
			return nil, false, err
		}
		h, data, err := l.conn.receive(ctx)
		if err != nil {
			return nil, false, err
		}
		r, err := parseLoginResponse(h, data)
		if err != nil {
			return nil, false, err
		}
		l.expStatSN = r.statSN + 1
		if text = append(text, r.data...); len(text) > maxText {
			return nil, false, fmt.Errorf("text of more than %d bytes", maxText)
		}
		if r.class != 0 {
			return nil, false, rejection(r, text)
		}
		if r.stage != stage {
			return nil, false, fmt.Errorf("got stage %d of the login, want %d", r.stage, stage)
		}
		if r.transit && (!request.transit || r.next != request.next) {
			return nil, false, fmt.Errorf("target passes to stage %d of the login, which was not requested", r.next)
		}
		if !r.partial {
			got, err = parseText(text)
			return got, r.transit, err
		}
		request = loginRequest{stage: stage, isid: request.isid}
	}
}

// rejection returns the error of a response with a status.
func rejection(r loginResponse, text []byte) error {
	e := &LoginError{Class: r.class, Detail: r.detail}
	if r.class == classRedirection {
		if pairs, err := parseText(text); err == nil {
			e.Address, _, _ = strings.Cut(pairs["TargetAddress"], ",") // followed by the tag of the portal group
		}
	}
	return e
}
