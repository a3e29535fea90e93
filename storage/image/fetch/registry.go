package fetch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// registrySession authorizes requests to one registry: with nothing, with credentials, or with a token from the
// server that the registry names ("Token Authentication" of the distribution project). The library parses challenges
// and requests tokens.
type registrySession struct {
	login      *Fetcher // fetches tokens
	basic      string   // the caller's credentials, as a header; may be empty
	repository string

	mu     sync.Mutex
	header string               // the Authorization of the next request
	bearer *transport.Challenge // the last one that a token was fetched for
}

func newRegistrySession(f Options, repository string) *registrySession {
	s := &registrySession{repository: repository}
	if given := f.Header.Get("Authorization"); isBasic(given) {
		s.basic = given
	} else {
		s.header = given
	}
	f.Header, f.registry = nil, nil
	s.login = New(f, nil)
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

// authorization returns the value of the header, "" for none.
func (s *registrySession) authorization() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.header
}

// answer fulfils one of the challenges of a 401 response, Bearer before Basic. It reports whether the request is worth
// repeating. headers are the values of WWW-Authenticate, sent is the header that was refused. If no challenge can be
// fulfilled, answer fetches a token for the last Bearer challenge again: Harbor answers an expired token with a Basic
// challenge.
func (s *registrySession) answer(ctx context.Context, headers []string, sent string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.header != sent {
		return true, nil // another request has renewed it
	}
	var (
		bearer      *transport.Challenge
		offersBasic bool
	)
	for _, text := range splitChallenges(headers) {
		c, err := parseChallenge(ctx, text)
		switch {
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case err != nil: // it may quote the header
			return false, fmt.Errorf("a challenge of %d characters in WWW-Authenticate cannot be read", len(text))
		case strings.EqualFold(c.Scheme, "bearer") && c.Parameters["realm"] != "" && bearer == nil:
			bearer = c
		case strings.EqualFold(c.Scheme, "basic"):
			offersBasic = true
		}
	}
	switch {
	case bearer != nil:
		err := s.renew(ctx, bearer)
		return err == nil, err
	case offersBasic && s.basic != "" && sent != s.basic:
		s.header = s.basic
		return true, nil
	case s.bearer != nil && len(headers) > 0: // another host's headers are dropped
		err := s.renew(ctx, s.bearer)
		return err == nil, err
	}
	return false, nil
}

// renew fetches a token for a Bearer challenge.
func (s *registrySession) renew(ctx context.Context, c *transport.Challenge) error {
	token, err := s.token(ctx, c)
	if err != nil {
		return err
	}
	if s.login.Secrets != nil {
		s.login.Secrets.Redact(token)
	}
	s.header, s.bearer = "Bearer "+token, c
	return nil
}

var (
	listElement = regexp.MustCompile(`(?:[^",]|"(?:[^"\\]|\\.)*(?:"|\\?$))+`) // a comma in quotes separates nothing
	parameter   = regexp.MustCompile(`^[^\s"=]+\s*=`)
)

// splitChallenges returns the challenges of WWW-Authenticate headers. Commas separate both challenges and the
// parameters of a challenge (RFC 9110, section 11.6.1).
func splitChallenges(headers []string) []string {
	var challenges []string
	for _, header := range headers {
		begin := len(challenges)
		for _, element := range listElement.FindAllString(header, -1) {
			element = strings.TrimSpace(element)
			switch last := len(challenges) - 1; {
			case element == "":
			case last >= begin && parameter.MatchString(element):
				challenges[last] += ", " + element
			default:
				challenges = append(challenges, element)
			}
		}
	}
	return challenges
}

// parseChallenge parses one challenge. The library only parses the response to its ping, so it gets the challenge in
// such a response. A real ping would not do: some registries demand nothing for it.
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

// token requests a token from the realm of the challenge, within a fixed time.
func (s *registrySession) token(ctx context.Context, c *transport.Challenge) (string, error) {
	refusal := errors.New("the registry names no https URL to get a token from")
	address, err := ParseURL(c.Parameters["realm"])
	realm := address.parsed
	if err != nil || realm.Scheme != "https" || realm.User != nil {
		return "", refusal
	}
	// The library rejects private addresses unless it is the registry's own. In deployment networks they are common.
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
	limit := cmp.Or(s.login.smallFile, tokenTimeout)
	err = s.login.within(ctx, address, limit, func(ctx context.Context) (err error) {
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
	case err != nil: // it may quote a token
		return "", errors.New("the response to the token request has none that can be read")
	}
	token := cmp.Or(answer.Token, answer.AccessToken)
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return "", errors.New("the response to the token request has none that can be sent")
	}
	return token, nil
}

// fetchToken sends the library's request with the same limits, redirects and errors as other requests. It is retried
// together with the request that needs the token.
func (s *registrySession) fetchToken(req *http.Request) (*http.Response, error) {
	u, err := ParseURL(req.URL.String())
	if err != nil {
		return nil, err
	}
	b, err := s.login.get(req.Context(), u, nil, req.Header.Get("Authorization"))
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: b.decoded(), Request: req}, nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
