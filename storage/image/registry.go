package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// registrySession is what one registry wants to see with each request: nothing, credentials, or a token that it has told
// where to get ("Token Authentication" of the distribution project). The library reads challenges and fetches tokens.
type registrySession struct {
	login      *fetcher // fetches tokens
	basic      string   // the caller's credentials, as a header; may be empty
	repository string

	mu     sync.Mutex
	header string // the Authorization of the next request
}

func newRegistrySession(f Fetch, repository string) *registrySession {
	s := &registrySession{repository: repository}
	if given := f.Header.Get("Authorization"); isBasic(given) {
		s.basic = given
	} else {
		s.header = given
	}
	f.Header, f.registry = nil, nil
	s.login = newFetcher(f, nil, nil)
	s.login.client.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		if req.URL.Scheme != "https" {
			return &redirectError{errors.New("a token is fetched by https only")}
		}
		return f.checkRedirect(req, via)
	}
	return s
}

func isBasic(header string) bool {
	scheme, _, _ := strings.Cut(header, " ")
	return strings.EqualFold(scheme, "basic")
}

// authorization is the value of the header to send, "" for none.
func (s *registrySession) authorization() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.header
}

// answer does what the challenges of a 401 ask for; false says that there is nothing that has not been tried. sent is the
// header that was refused.
func (s *registrySession) answer(ctx context.Context, challenges []string, sent string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.header != sent {
		return true, nil // somebody else was here first
	}
	for _, text := range challenges {
		c, err := parseChallenge(ctx, text)
		switch {
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case err != nil: // might quote the header
			return false, fmt.Errorf("a WWW-Authenticate header of %d characters cannot be read", len(text))
		case strings.EqualFold(c.Scheme, "bearer") && c.Parameters["realm"] != "":
			token, err := s.token(ctx, c)
			if err != nil {
				return false, err
			}
			if s.login.Secret != nil {
				s.login.Secret(token)
			}
			s.header = "Bearer " + token
			return true, nil
		case strings.EqualFold(c.Scheme, "basic") && s.basic != "" && sent != s.basic:
			s.header = s.basic
			return true, nil
		}
	}
	return false, nil
}

// parseChallenge reads one value of WWW-Authenticate. The library reads them out of what a registry answers to its ping, and
// this is the answer that it gets: what counts is what the registry asks of this request, and some ask nothing of a ping.
func parseChallenge(ctx context.Context, text string) (*transport.Challenge, error) {
	nowhere, err := name.NewRegistry("registry.invalid")
	if err != nil {
		return nil, err
	}
	return transport.Ping(ctx, nowhere, roundTripper(func(req *http.Request) (*http.Response, error) {
		header := http.Header{"Www-Authenticate": {text}}
		return &http.Response{StatusCode: http.StatusUnauthorized, Header: header, Body: http.NoBody, Request: req}, nil
	}))
}

// token fetches a token from the realm of the challenge within a fixed time.
func (s *registrySession) token(ctx context.Context, c *transport.Challenge) (string, error) {
	refusal := errors.New("the registry names no https URL to get a token from")
	realm, err := url.Parse(c.Parameters["realm"])
	if err != nil || realm.Scheme != "https" || realm.Host == "" || realm.User != nil {
		return "", refusal
	}
	// The library takes a private address for a trap unless it is the registry's own. Where nodes are deployed it is a usual one.
	server, err := name.NewRegistry(realm.Host)
	if err != nil {
		return "", refusal
	}
	credentials := authn.Anonymous
	if _, text, _ := strings.Cut(s.basic, " "); text != "" {
		credentials = authn.FromConfig(authn.AuthConfig{Auth: text})
	}
	scope := cmp.Or(c.Parameters["scope"], "repository:"+s.repository+":pull")
	var answer *transport.Token
	err = s.login.within(ctx, realm.String(), cmp.Or(s.login.smallFile, tokenTimeout), func(ctx context.Context) (err error) {
		answer, err = transport.Exchange(ctx, server, credentials, roundTripper(s.fetchToken), []string{scope}, c)
		return err
	})
	var (
		down *DownloadError
		late *TimeoutError
		slow *SlowError
	)
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case errors.As(err, &down):
		return "", down
	case errors.As(err, &late):
		return "", late
	case errors.As(err, &slow):
		return "", slow
	case err != nil: // which might quote a token
		return "", errors.New("the answer to the request for a token has none that can be read")
	}
	token := cmp.Or(answer.Token, answer.AccessToken)
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return "", errors.New("the answer to the request for a token has none that can be sent")
	}
	return token, nil
}

// fetchToken sends the library's request as others are sent: with their limits, redirects and errors. What fails is tried
// again with the request that wants the token.
func (s *registrySession) fetchToken(req *http.Request) (*http.Response, error) {
	b, err := s.login.get(req.Context(), req.URL.String(), nil, req.Header.Get("Authorization"))
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: b, Request: req}, nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
