package api

import (
	"encoding/json"
	"net/http"
	"strconv"
)

type link struct {
	Href string `json:"href"`
	Rel  string `json:"rel"`
	Type string `json:"type,omitempty"`
}

type version struct {
	ID    string `json:"id"`
	Links []link `json:"links"`
}

type mediaType struct {
	Base string `json:"base"`
	Type string `json:"type"`
}

// root returns the URL of the API as the client sees it, without a trailing slash.
func root(r *http.Request) string {
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

func version1(root string) version {
	return version{ID: "v1", Links: []link{
		{Href: root + "/v1", Rel: "self"},
		{Href: "https://docs.openstack.org/ironic-python-agent/", Rel: "describedby", Type: "text/html"},
	}}
}

// root answers GET / with the versions of the API.
func (a *API) root(w http.ResponseWriter, r *http.Request) error {
	v := version1(root(r))
	return writeJSON(w, http.StatusOK, struct {
		Name        string    `json:"name"`
		Description string    `json:"description"`
		Versions    []version `json:"versions"`
		Default     version   `json:"default_version"`
	}{
		"OpenStack Ironic Python Agent API", "Ironic Python Agent is a provisioning agent for OpenStack Ironic",
		[]version{v},
		v,
	})
}

// version1 answers GET /v1/ with the resources of the API.
func (a *API) version1(w http.ResponseWriter, r *http.Request) error {
	at := root(r)
	links := func(name string) []link {
		return []link{{Href: at + "/v1/" + name, Rel: "self"}, {Href: at + "/" + name, Rel: "bookmark"}}
	}
	return writeJSON(w, http.StatusOK, struct {
		Commands   []link      `json:"commands"`
		Status     []link      `json:"status"`
		MediaTypes []mediaType `json:"media_types"`
		version
	}{
		Commands:   links("commands"),
		Status:     links("status"),
		MediaTypes: []mediaType{{"application/json", "application/vnd.openstack.ironic-python-agent.v1+json"}},
		version:    version1(at),
	})
}

// status answers GET /v1/status.
func (a *API) status(w http.ResponseWriter, _ *http.Request) error {
	seconds := float64(a.Started.UnixMicro()) / 1e6
	return writeJSON(w, http.StatusOK, struct {
		StartedAt json.RawMessage `json:"started_at"` // a number that always has a fraction
		Version   string          `json:"version"`
	}{json.RawMessage(strconv.FormatFloat(seconds, 'f', 6, 64)), a.Version})
}
