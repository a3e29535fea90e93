package watch

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/httpbasic"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/noauth"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"
	"go.yaml.in/yaml/v3"

	"ironroot/internal/authorities"
)

// requestTimeout limits a request to Keystone or Ironic.
const requestTimeout = 30 * time.Second

// Access says how to reach Ironic. Values that it does not contain are taken from the environment, as by the openstack
// command: OS_CLOUD with clouds.yaml, OS_AUTH_URL and others for Keystone, OS_AUTH_TYPE (none or http_basic) with
// OS_ENDPOINT, OS_USERNAME and OS_PASSWORD, OS_CACERT.
type Access struct {
	URL      string // of an Ironic without Keystone
	CAFile   string // PEM; "" uses OS_CACERT or the system's
	Insecure bool   // do not verify certificates
	// Warnings receives a line for each certificate of CAFile that cannot be used, if others can; nil = none.
	Warnings io.Writer
}

// Connect returns the nodes of an Ironic. It logs in to Keystone if there is one.
func Connect(ctx context.Context, a Access) (Source, error) {
	client, err := a.client(ctx)
	if err != nil {
		return nil, err
	}
	client.Microversion = microversion
	return ironic{client}, nil
}

func (a Access) client(ctx context.Context) (*gophercloud.ServiceClient, error) {
	alone := standalone{
		Type: os.Getenv("OS_AUTH_TYPE"), Endpoint: cmp.Or(a.URL, os.Getenv("OS_ENDPOINT")),
		Username: os.Getenv("OS_USERNAME"), Password: os.Getenv("OS_PASSWORD"),
	}
	cloud := os.Getenv("OS_CLOUD")
	switch {
	case a.URL != "" || alone.isType() && alone.Endpoint != "":
		return a.standalone(alone)
	case cloud != "":
		return a.cloud(ctx, cloud)
	case os.Getenv("OS_AUTH_URL") == "":
		return nil, errors.New("no Ironic: set --url, OS_CLOUD, or OS_AUTH_URL and the other variables of OpenStack")
	}
	verification, err := a.tls()
	if err != nil {
		return nil, err
	}
	endpoint := gophercloud.EndpointOpts{Region: os.Getenv("OS_REGION_NAME")}
	return a.keystone(ctx, authOptions(), endpoint, verification)
}

// authOptions returns the credentials for Keystone in the environment. gophercloud's function for this does not know
// domains of users and projects.
func authOptions() gophercloud.AuthOptions {
	o := gophercloud.AuthOptions{
		IdentityEndpoint: os.Getenv("OS_AUTH_URL"), TokenID: os.Getenv("OS_TOKEN"),
		UserID: cmp.Or(os.Getenv("OS_USER_ID"), os.Getenv("OS_USERID")), Username: os.Getenv("OS_USERNAME"),
		Password: os.Getenv("OS_PASSWORD"), Passcode: os.Getenv("OS_PASSCODE"),
		ApplicationCredentialID:     os.Getenv("OS_APPLICATION_CREDENTIAL_ID"),
		ApplicationCredentialName:   os.Getenv("OS_APPLICATION_CREDENTIAL_NAME"),
		ApplicationCredentialSecret: os.Getenv("OS_APPLICATION_CREDENTIAL_SECRET"),
	}
	domain := func(kind string) (id, name string) {
		id = cmp.Or(os.Getenv("OS_"+kind+"_DOMAIN_ID"), os.Getenv("OS_DOMAIN_ID"))
		if id == "" { // Keystone accepts one of them
			name = cmp.Or(os.Getenv("OS_"+kind+"_DOMAIN_NAME"), os.Getenv("OS_DOMAIN_NAME"))
		}
		return id, name
	}
	if o.UserID == "" && o.Username != "" {
		o.DomainID, o.DomainName = domain("USER")
	}
	id := cmp.Or(os.Getenv("OS_PROJECT_ID"), os.Getenv("OS_TENANT_ID"))
	name := cmp.Or(os.Getenv("OS_PROJECT_NAME"), os.Getenv("OS_TENANT_NAME"))
	switch {
	case o.ApplicationCredentialID != "" || o.ApplicationCredentialName != "": // has its scope
	case os.Getenv("OS_SYSTEM_SCOPE") == "all":
		o.Scope = &gophercloud.AuthScope{System: true}
	case id != "":
		o.Scope = &gophercloud.AuthScope{ProjectID: id}
	case name != "":
		o.Scope = &gophercloud.AuthScope{ProjectName: name}
		o.Scope.DomainID, o.Scope.DomainName = domain("PROJECT")
	}
	return o
}

// keystone logs in to Keystone.
func (a Access) keystone(
	ctx context.Context, o gophercloud.AuthOptions, e gophercloud.EndpointOpts, verification *tls.Config,
) (*gophercloud.ServiceClient, error) {
	o.AllowReauth = true // tokens expire while a disk is erased
	provider, err := openstack.NewClient(o.IdentityEndpoint)
	if err != nil {
		return nil, fmt.Errorf("keystone %s: %w", o.IdentityEndpoint, err)
	}
	provider.HTTPClient = httpClient(verification)
	if err := openstack.Authenticate(ctx, provider, o); err != nil {
		return nil, fmt.Errorf("log in to Keystone %s: %w", o.IdentityEndpoint, err)
	}
	client, err := openstack.NewBareMetalV1(provider, e)
	if err != nil {
		return nil, fmt.Errorf("find Ironic in the catalog of Keystone: %w", err)
	}
	return client, nil
}

// standalone is an Ironic without Keystone, also as the field auth of a cloud.
type standalone struct {
	Type     string `yaml:"-"`
	Endpoint string `yaml:"endpoint"`
	Username string `yaml:"username"`
	Password string `yaml:"password"`
}

func (s standalone) isType() bool { return s.Type == "none" || s.Type == "http_basic" }

func (a Access) standalone(s standalone) (*gophercloud.ServiceClient, error) {
	verification, err := a.tls()
	if err != nil {
		return nil, err
	}
	endpoint := strings.TrimSuffix(s.Endpoint, "/")
	if !strings.HasSuffix(endpoint, "/v1") {
		endpoint += "/v1"
	}
	var client *gophercloud.ServiceClient
	if s.Type == "http_basic" || s.Type == "" && s.Username != "" {
		client, err = httpbasic.NewBareMetalHTTPBasic(httpbasic.EndpointOpts{
			IronicEndpoint: endpoint, IronicUser: s.Username, IronicUserPassword: s.Password,
		})
	} else {
		client, err = noauth.NewBareMetalNoAuth(noauth.EndpointOpts{IronicEndpoint: endpoint})
	}
	if err != nil {
		return nil, err
	}
	client.HTTPClient = httpClient(verification)
	return client, nil
}

// cloudFile is the part of clouds.yaml about clouds without Keystone, which gophercloud does not support.
type cloudFile struct {
	Clouds map[string]struct {
		Type     string     `yaml:"auth_type"`
		Auth     standalone `yaml:"auth"`
		Override string     `yaml:"baremetal_endpoint_override"`
		CAFile   string     `yaml:"cacert"`
		Verify   *bool      `yaml:"verify"`
	} `yaml:"clouds"`
}

// cloud connects to a cloud of clouds.yaml.
func (a Access) cloud(ctx context.Context, name string) (*gophercloud.ServiceClient, error) {
	file, err := a.cloudFile()
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var known cloudFile
	if err := yaml.Unmarshal(data, &known); err != nil {
		return nil, fmt.Errorf("parse %s: %w", file, err)
	}
	c := known.Clouds[name]
	c.Auth.Type, c.Auth.Endpoint = c.Type, cmp.Or(c.Override, c.Auth.Endpoint)
	ca := cmp.Or(a.CAFile, os.Getenv("OS_CACERT"), c.CAFile)
	if c.Auth.isType() {
		a.CAFile, a.Insecure = ca, a.Insecure || c.Verify != nil && !*c.Verify
		return a.standalone(c.Auth)
	}
	if ca != "" { // gophercloud reads the file, too, but drops what it cannot use
		if _, err := a.readAuthorities(ca); err != nil {
			return nil, err
		}
	}
	options := []clouds.ParseOption{clouds.WithCloudName(name), clouds.WithLocations(file)}
	if a.CAFile != "" {
		options = append(options, clouds.WithCACertPath(a.CAFile))
	}
	if a.Insecure {
		options = append(options, clouds.WithInsecure(true))
	}
	auth, endpoint, verification, err := clouds.Parse(options...)
	if err != nil {
		return nil, fmt.Errorf("cloud %s of %s: %w", name, file, err)
	}
	return a.keystone(ctx, auth, endpoint, verification)
}

// cloudFile returns the first clouds.yaml, in the order of the openstack command.
func (a Access) cloudFile() (string, error) {
	if file := os.Getenv("OS_CLIENT_CONFIG_FILE"); file != "" {
		return file, nil
	}
	home := cmp.Or(os.Getenv("XDG_CONFIG_HOME"), filepath.Join(os.Getenv("HOME"), ".config"))
	places := []string{"clouds.yaml", filepath.Join(home, "openstack/clouds.yaml"), "/etc/openstack/clouds.yaml"}
	for _, file := range places {
		if _, err := os.Stat(file); err == nil {
			return file, nil
		}
	}
	return "", fmt.Errorf("no clouds.yaml for OS_CLOUD: looked for %s", strings.Join(places, ", "))
}

// tls returns how certificates are verified.
func (a Access) tls() (*tls.Config, error) {
	c := &tls.Config{InsecureSkipVerify: a.Insecure, MinVersion: tls.VersionTLS12} //nolint:gosec // as requested
	if file := cmp.Or(a.CAFile, os.Getenv("OS_CACERT")); file != "" {
		var err error
		if c.RootCAs, err = a.readAuthorities(file); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// readAuthorities returns the certificates of a file, and writes which ones cannot be used to a.Warnings.
func (a Access) readAuthorities(file string) (*x509.CertPool, error) {
	if below, ok := strings.CutPrefix(file, "~/"); ok { // in clouds.yaml
		file = filepath.Join(os.Getenv("HOME"), below)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool, unusable, err := authorities.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for _, err := range unusable {
		if a.Warnings != nil {
			_, _ = fmt.Fprintf(a.Warnings, "warning: %s: %v\n", file, err)
		}
	}
	return pool, nil
}

func httpClient(verification *tls.Config) http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = verification
	return http.Client{Transport: transport, Timeout: requestTimeout}
}
