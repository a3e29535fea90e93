package watch

import (
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gophercloud/gophercloud/v2"
)

const password = "s3cret-Passw0rd"

// cloud is a fake Ironic and a fake Keystone.
type cloud struct {
	*httptest.Server
	accept func(r *http.Request) bool // whether a request to Ironic is authorized
	old    int                        // status of a request with a parameter of API version 1.83, 0 if it is known
}

func newCloud(t *testing.T) *cloud {
	t.Helper()
	c := &cloud{accept: func(*http.Request) bool { return true }}
	c.Server = httptest.NewTLSServer(c)
	t.Cleanup(c.Close)
	return c
}

// caFile returns a file with the certificate of the server.
func (c *cloud) caFile(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "ca.pem")
	data := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate().Raw})
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func (c *cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Path == "/identity/v3/auth/tokens":
		w.Header().Set("X-Subject-Token", "token-of-keystone")
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, `{"token":{"expires_at":"2036-01-01T00:00:00.000000Z","catalog":[{"type":"baremetal",
			"name":"ironic","endpoints":[{"interface":"public","region":"one","region_id":"one",
			"url":"%s/baremetal"}]}]}}`, c.URL)
		return
	case r.URL.Path == "/baremetal/":
		_, _ = fmt.Fprintf(w, `{"name":"OpenStack Ironic API","versions":[{"id":"v1","status":"CURRENT",
			"min_version":"1.1","version":"1.96","links":[{"href":"%s/baremetal/v1/","rel":"self"}]}]}`, c.URL)
		return
	case !c.accept(r):
		w.WriteHeader(http.StatusUnauthorized)
		return
	case r.Header.Get("X-OpenStack-Ironic-API-Version") != microversion:
		w.WriteHeader(http.StatusNotAcceptable)
		return
	}
	const node = `{"uuid":"u1","name":"rack-1","provision_state":"clean wait","target_provision_state":"available",
		"last_error":null,"clean_step":{"step":"erase_devices"},"deploy_step":{},
		"provision_updated_at":"2026-11-27T01:02:03+00:00","driver_internal_info":{
			"agent_status_message":"erase_devices: 43%, disk","agent_last_heartbeat":"2026-11-27T01:02:02.987654"}}`
	const other = `{"uuid":"u2","name":null,"provision_state":"active","target_provision_state":null,
		"last_error":"old","clean_step":null,"provision_updated_at":null,
		"driver_internal_info":{"content":"** Redacted **"}}`
	switch _, path, _ := strings.Cut(r.URL.Path, "/v1/"); path {
	case "nodes/rack-1":
		_, _ = io.WriteString(w, node)
	case "nodes/detail":
		switch children := r.URL.Query().Get("include_children"); {
		case children != "" && c.old != 0:
			w.WriteHeader(c.old)
		case children != "true" && c.old == 0: // rack-1 has a parent
			_, _ = io.WriteString(w, `{"nodes":[`+other+`]}`)
		default:
			_, _ = io.WriteString(w, `{"nodes":[`+node+`,`+other+`]}`)
		}
	default:
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"error_message":{"faultstring":"Node could not be found."}}`)
	}
}

// setEnvironment sets variables of OpenStack and no others.
func setEnvironment(t *testing.T, pairs []string) {
	t.Helper()
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "OS_") {
			t.Setenv(name, "")
		}
	}
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		t.Setenv(name, value)
	}
}

// The variables of the openstack command select the user and the scope of a token.
func TestAuthOptions(t *testing.T) {
	type scope = gophercloud.AuthScope
	for name, tt := range map[string]struct {
		environment []string
		want        gophercloud.AuthOptions
	}{
		"user and project by name": {
			[]string{"OS_USERNAME=u", "OS_USER_DOMAIN_NAME=a", "OS_PROJECT_NAME=p", "OS_PROJECT_DOMAIN_ID=b"},
			gophercloud.AuthOptions{
				Username: "u", DomainName: "a", Scope: &scope{ProjectName: "p", DomainID: "b"},
			},
		},
		"domain of both": {
			[]string{"OS_USERNAME=u", "OS_DOMAIN_NAME=a", "OS_TENANT_NAME=p"},
			gophercloud.AuthOptions{
				Username: "u", DomainName: "a", Scope: &scope{ProjectName: "p", DomainName: "a"},
			},
		},
		"user and project by ID": {
			[]string{"OS_USERID=1", "OS_USERNAME=u", "OS_USER_DOMAIN_NAME=a", "OS_PROJECT_ID=2", "OS_PROJECT_NAME=p"},
			gophercloud.AuthOptions{UserID: "1", Username: "u", Scope: &scope{ProjectID: "2"}},
		},
		"whole system": {
			[]string{"OS_USER_ID=1", "OS_SYSTEM_SCOPE=all", "OS_PROJECT_ID=2"},
			gophercloud.AuthOptions{UserID: "1", Scope: &scope{System: true}},
		},
		"application credential": {
			[]string{"OS_APPLICATION_CREDENTIAL_ID=1", "OS_PROJECT_ID=2"},
			gophercloud.AuthOptions{ApplicationCredentialID: "1"},
		},
		"no scope": {[]string{"OS_USER_ID=1"}, gophercloud.AuthOptions{UserID: "1"}},
	} {
		setEnvironment(t, tt.environment)
		if diff := cmp.Diff(tt.want, authOptions()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Ironic is reached with Keystone, with HTTP basic authentication and without authentication, by variables of the
// environment and by clouds.yaml.
func TestConnect(t *testing.T) {
	c := newCloud(t)
	ca := c.caFile(t)
	token := func(r *http.Request) bool { return r.Header.Get("X-Auth-Token") == "token-of-keystone" }
	basic := func(r *http.Request) bool {
		user, secret, _ := r.BasicAuth()
		return user == "admin" && secret == password
	}
	none := func(r *http.Request) bool {
		return r.Header.Get("Authorization") == "" && r.Header.Get("X-Auth-Token") == ""
	}
	file := filepath.Join(t.TempDir(), "clouds.yaml")
	yaml := fmt.Sprintf(`clouds:
  keystone:
    auth: {auth_url: %[1]q, username: admin, password: %[2]q, project_name: admin, user_domain_id: default,
      project_domain_id: default}
    region_name: one
    cacert: %[4]q
  bifrost:
    auth_type: http_basic
    auth: {endpoint: %[3]q, username: admin, password: %[2]q}
    cacert: %[4]q
  lab:
    auth_type: none
    baremetal_endpoint_override: %[3]q
    verify: false
`, c.URL+"/identity/v3", password, c.URL, ca)
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		access      Access
		environment []string
		accept      func(*http.Request) bool
	}{
		"Keystone": {Access{}, []string{
			"OS_AUTH_URL=" + c.URL + "/identity/v3", "OS_USERNAME=admin", "OS_PASSWORD=" + password,
			"OS_PROJECT_NAME=admin", "OS_USER_DOMAIN_NAME=Default", "OS_PROJECT_DOMAIN_NAME=Default", "OS_CACERT=" + ca,
		}, token},
		"Keystone with an application credential": {Access{}, []string{
			"OS_AUTH_URL=" + c.URL + "/identity/v3", "OS_APPLICATION_CREDENTIAL_ID=1",
			"OS_APPLICATION_CREDENTIAL_SECRET=" + password, "OS_REGION_NAME=one", "OS_CACERT=" + ca,
		}, token},
		"Keystone for the whole system": {Access{}, []string{
			"OS_AUTH_URL=" + c.URL + "/identity/v3", "OS_USER_ID=1", "OS_PASSWORD=" + password, "OS_SYSTEM_SCOPE=all",
			"OS_CACERT=" + ca,
		}, token},
		"basic by variables": {Access{}, []string{
			"OS_AUTH_TYPE=http_basic", "OS_ENDPOINT=" + c.URL + "/v1/", "OS_USERNAME=admin", "OS_PASSWORD=" + password,
			"OS_CACERT=" + ca,
		}, basic},
		"basic by URL": {
			Access{URL: c.URL, CAFile: ca}, []string{"OS_USERNAME=admin", "OS_PASSWORD=" + password}, basic,
		},
		"none by variables":   {Access{Insecure: true}, []string{"OS_AUTH_TYPE=none", "OS_ENDPOINT=" + c.URL}, none},
		"none by URL":         {Access{URL: c.URL, CAFile: ca}, nil, none},
		"cloud with Keystone": {Access{}, []string{"OS_CLOUD=keystone", "OS_CLIENT_CONFIG_FILE=" + file}, token},
		"cloud with basic":    {Access{}, []string{"OS_CLOUD=bifrost", "OS_CLIENT_CONFIG_FILE=" + file}, basic},
		"cloud without":       {Access{}, []string{"OS_CLOUD=lab", "OS_CLIENT_CONFIG_FILE=" + file}, none},
	} {
		t.Run(name, func(t *testing.T) {
			setEnvironment(t, tt.environment)
			c.accept = tt.accept
			source, err := Connect(t.Context(), tt.access)
			if err != nil {
				t.Fatal(err)
			}
			want := Node{
				UUID: "u1", Name: "rack-1", State: "clean wait", Target: "available", Step: "erase_devices",
				Progress:  "erase_devices: 43%, disk",
				Heartbeat: time.Date(2026, 11, 27, 1, 2, 2, 987654000, time.UTC), UpdatedAt: at(3),
			}
			got, err := source.Node(t.Context(), "rack-1")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("node (-want +got):\n%s", diff)
			}
			all, err := source.Nodes(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]Node{want, {UUID: "u2", State: "active", LastError: "old"}}, all); diff != "" {
				t.Errorf("nodes (-want +got):\n%s", diff)
			}
			if _, err := source.Node(t.Context(), "other"); !errors.Is(err, ErrNotFound) {
				t.Errorf("unknown node: got %v, want %v", err, ErrNotFound)
			}
		})
	}
}

// The certificate of Keystone is verified, unless the user or clouds.yaml says otherwise.
func TestCloudVerification(t *testing.T) {
	c := newCloud(t)
	file := filepath.Join(t.TempDir(), "clouds.yaml")
	yaml := fmt.Sprintf("clouds: {a: {auth: {auth_url: %q, username: admin, password: %q, project_name: admin, "+
		"user_domain_id: default, project_domain_id: default}}}", c.URL+"/identity/v3", password)
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	setEnvironment(t, []string{"OS_CLOUD=a", "OS_CLIENT_CONFIG_FILE=" + file})
	if _, err := Connect(t.Context(), Access{}); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("unknown certificate: got %v, want an error", err)
	}
	for name, access := range map[string]Access{"not verified": {Insecure: true}, "known": {CAFile: c.caFile(t)}} {
		source, err := Connect(t.Context(), access)
		if err == nil {
			_, err = source.Node(t.Context(), "rack-1")
		}
		if err != nil {
			t.Errorf("%s certificate: got %v", name, err)
		}
	}
}

// A block of the CA file that cannot be used is a warning, wherever the file is named.
func TestUnusableAuthority(t *testing.T) {
	c := newCloud(t)
	known, err := os.ReadFile(c.caFile(t))
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	ca, file := filepath.Join(home, "ca.pem"), filepath.Join(home, "clouds.yaml")
	bad := "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
	if err := os.WriteFile(ca, append([]byte(bad), known...), 0o600); err != nil {
		t.Fatal(err)
	}
	yaml := fmt.Sprintf("clouds: {a: {auth: {auth_url: %q, username: admin, password: %q, project_name: admin, "+
		"user_domain_id: default, project_domain_id: default}, cacert: ~/ca.pem}}", c.URL+"/identity/v3", password)
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	cloud := []string{"OS_CLOUD=a", "OS_CLIENT_CONFIG_FILE=" + file, "HOME=" + home}
	for name, tt := range map[string]struct {
		access      Access
		environment []string
	}{
		"flag":        {Access{URL: c.URL, CAFile: ca}, nil},
		"variable":    {Access{URL: c.URL}, []string{"OS_CACERT=" + ca}},
		"cloud, flag": {Access{CAFile: ca}, cloud},
		"clouds.yaml": {Access{}, cloud},
	} {
		t.Run(name, func(t *testing.T) {
			setEnvironment(t, tt.environment)
			var warnings strings.Builder
			tt.access.Warnings = &warnings
			if _, err := Connect(t.Context(), tt.access); err != nil {
				t.Fatal(err)
			}
			want := "warning: " + ca + ": PEM block 1 of 2: x509: malformed certificate\n"
			if warnings.String() != want {
				t.Errorf("got warnings %q, want %q", warnings.String(), want)
			}
		})
	}
}

// An Ironic before API version 1.83 rejects the parameter for nodes with a parent, which it does not know.
func TestOldIronic(t *testing.T) {
	setEnvironment(t, nil)
	c := newCloud(t)
	for _, c.old = range []int{http.StatusNotAcceptable, http.StatusBadRequest} {
		source, err := Connect(t.Context(), Access{URL: c.URL, CAFile: c.caFile(t)})
		if err != nil {
			t.Fatal(err)
		}
		if nodes, err := source.Nodes(t.Context()); err != nil || len(nodes) != 2 {
			t.Errorf("status %d: got %+v, %v, want two nodes", c.old, nodes, err)
		}
	}
	c.old = http.StatusForbidden
	source, err := Connect(t.Context(), Access{URL: c.URL, CAFile: c.caFile(t)})
	if err != nil {
		t.Fatal(err)
	}
	if nodes, err := source.Nodes(t.Context()); err == nil {
		t.Errorf("forbidden: got %+v, want an error", nodes)
	}
}

// Errors say what is missing or wrong, and do not contain the password.
func TestConnectFails(t *testing.T) {
	c := newCloud(t)
	ca := c.caFile(t)
	c.accept = func(*http.Request) bool { return false }
	broken := filepath.Join(t.TempDir(), "broken.yaml")
	if err := os.WriteFile(broken, []byte("clouds: [\n  password: "+password), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		access      Access
		environment []string
		want        string
	}{
		"nothing":             {Access{}, nil, "OS_CLOUD"},
		"incomplete":          {Access{CAFile: ca}, []string{"OS_AUTH_URL=" + c.URL + "/identity/v3"}, "password"},
		"unknown certificate": {Access{URL: c.URL}, nil, "certificate"},
		"no certificate":      {Access{URL: c.URL, CAFile: broken}, nil, broken + ": no usable certificate"},
		"no such file":        {Access{URL: c.URL, CAFile: ca + ".none"}, nil, "no such file"},
		"rejected": {
			Access{URL: c.URL, CAFile: ca}, []string{"OS_USERNAME=admin", "OS_PASSWORD=" + password}, "401",
		},
		"broken clouds.yaml": {Access{}, []string{"OS_CLOUD=x", "OS_CLIENT_CONFIG_FILE=" + broken}, broken},
		"no clouds.yaml anywhere": {
			Access{}, []string{"OS_CLOUD=x", "XDG_CONFIG_HOME=" + t.TempDir()}, "no clouds.yaml for OS_CLOUD",
		},
		"no clouds.yaml": {
			Access{}, []string{"OS_CLOUD=x", "OS_CLIENT_CONFIG_FILE=" + ca + ".none"}, "no such file",
		},
	} {
		setEnvironment(t, tt.environment)
		source, err := Connect(t.Context(), tt.access)
		if err == nil {
			_, err = source.Node(t.Context(), "rack-1")
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), password) {
			t.Errorf("%s: got %v, want %q and no password", name, err, tt.want)
		}
	}
}
