package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"

	"ironroot/agent/command"
	"ironroot/agent/fault"
)

// list answers GET /v1/commands/.
func (a *API) list(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, map[string][]command.Record{"commands": a.Commands.List()})
}

// listEmpty answers GET /v1/commands/ without reading records.
func (a *API) listEmpty(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, map[string][]command.Record{"commands": {}})
}

// show answers GET /v1/commands/ID.
func (a *API) show(w http.ResponseWriter, r *http.Request, id string) error {
	record, ok := a.Commands.Get(id)
	if !ok {
		return recordNotFound(id)
	}
	return a.answer(w, r, record)
}

func recordNotFound(id string) error { return fault.NotFound("Command Result", id) }

// run answers POST /v1/commands/.
func (a *API) run(w http.ResponseWriter, r *http.Request) error {
	name, params, err := parseCommand(newDeadlineReader(w, http.MaxBytesReader(w, r.Body, maxBodyBytes)))
	if err != nil {
		return err
	}
	if err := a.checkToken(r); err != nil { // Ironic can have issued another token while the body was read
		return err
	}
	record, err := a.Commands.Execute(withCaller(r), name, params)
	if err != nil {
		return err
	}
	return a.answer(w, r, *record)
}

// withCaller returns the context of a request, with the addresses of its connection. Headers of proxies are ignored.
func withCaller(r *http.Request) context.Context {
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.Context()
	}
	address, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return r.Context()
	}
	local, err := netip.ParseAddrPort(address.String())
	if err != nil {
		return r.Context()
	}
	return command.WithCaller(r.Context(), command.Caller{
		Remote: remote.Addr().Unmap(), Local: local.Addr().Unmap(),
	})
}

// answer writes a record. With wait=true in the query it first waits for the end of the command.
func (a *API) answer(w http.ResponseWriter, r *http.Request, record command.Record) error {
	if strings.ToLower(r.URL.Query().Get("wait")) == "true" && record.Status == command.Running {
		final, err := a.Commands.Wait(r.Context(), record.ID)
		if err != nil {
			return err
		}
		record = final
	}
	return writeJSON(w, http.StatusOK, record)
}

// parseCommand reads a request's body. Its content type is ignored.
func parseCommand(body io.Reader) (name string, params command.Params, err error) {
	data, err := io.ReadAll(body)
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return "", nil,
			httpError(http.StatusRequestEntityTooLarge, "The body is larger than "+itoa(int(large.Limit))+" bytes.")
	} else if errors.Is(err, os.ErrDeadlineExceeded) {
		return "", nil, httpError(http.StatusRequestTimeout, "Timed out while reading the body.")
	} else if err != nil {
		return "", nil, httpError(http.StatusBadRequest, "Failed to read the body: "+err.Error())
	}
	missing := httpError(http.StatusBadRequest, "Missing or invalid name or params")
	// A map compares keys by case; a struct does not.
	var fields map[string]json.RawMessage
	var notObject *json.UnmarshalTypeError
	if err := json.Unmarshal(data, &fields); errors.As(err, &notObject) {
		return "", nil, missing
	} else if err != nil {
		return "", nil, httpError(http.StatusBadRequest, "Failed to decode JSON object: "+err.Error())
	}
	if len(fields["name"]) == 0 || json.Unmarshal(fields["name"], &name) != nil || string(fields["name"]) == "null" {
		return "", nil, missing
	}
	if len(fields["params"]) == 0 || json.Unmarshal(fields["params"], &params) != nil || params == nil {
		return "", nil, missing
	}
	return name, params, nil
}
