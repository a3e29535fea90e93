package image

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
)

// registrySession is what one registry wants to see with each request: nothing, credentials, or a token that it has told
// where to get (RFC 6750, and "Token Authentication" of the distribution project).
type registrySession struct {
	login      Fetch  // how a token is fetched
	basic      string // the caller's credentials, as a header; may be empty
	repository string

	mu     sync.Mutex
	header string // the Authorization of the next request
}

func newRegistrySession(f Fetch, repository string) *registrySession {
	s := &registrySession{login: f, repository: repository}
	s.login.Header, s.login.registry = nil, nil
	if given := f.Header.Get("Authorization"); isScheme(given, "basic") {
		s.basic = given
	} else {
		s.header = given
	}
	return s
}

func isScheme(header, scheme string) bool {
	got, _, _ := strings.Cut(header, " ")
	return strings.EqualFold(got, scheme)
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
	for _, c := range parseChallenges(challenges) {
		switch {
		case c.scheme == "bearer" && c.params["realm"] != "":
			token, err := s.token(ctx, c)
			if err != nil {
				return false, err
			}
			if s.login.Secret != nil {
				s.login.Secret(token)
			}
			s.header = "Bearer " + token
			return true, nil
		case c.scheme == "basic" && s.basic != "" && sent != s.basic:
			s.header = s.basic
			return true, nil
		}
	}
	return false, nil
}

// token fetches a token from where the challenge says.
func (s *registrySession) token(ctx context.Context, c challenge) (string, error) {
	realm, err := url.Parse(c.params["realm"])
	if err != nil || realm.Scheme != "https" || realm.Host == "" || realm.User != nil {
		return "", errors.New("the registry names no https URL to get a token from")
	}
	query := realm.Query()
	if service := c.params["service"]; service != "" {
		query.Set("service", service)
	}
	scope := c.params["scope"]
	if scope == "" {
		scope = "repository:" + s.repository + ":pull"
	}
	query.Set("scope", scope)
	realm.RawQuery = query.Encode()
	f := s.login
	if s.basic != "" {
		f.Header = http.Header{"Authorization": {s.basic}}
	}
	const maxAnswer = 1 << 20
	text, err := newFetcher(f, nil, nil).readAll(ctx, realm.String(), maxAnswer)
	if err != nil {
		return "", err
	}
	var answer struct {
		Token       string `json:"token"`
		AccessToken string `json:"access_token"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return "", errors.New("the answer with the token cannot be read") // json's error might quote it
	}
	token := answer.Token
	if token == "" {
		token = answer.AccessToken
	}
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return "", errors.New("the answer to the request for a token has none")
	}
	return token, nil
}

// challenge is one of WWW-Authenticate (RFC 9110, 11.6.1); scheme and names are in lower case.
type challenge struct {
	scheme string
	params map[string]string
}

// parseChallenges reads the values of WWW-Authenticate. What it cannot read it leaves out.
func parseChallenges(values []string) []challenge {
	var list []challenge
	for _, text := range values {
		for {
			var word string
			text = strings.TrimLeft(text, " \t,")
			if word, text = cutToken(text); word == "" {
				break
			}
			rest, isParam := strings.CutPrefix(strings.TrimLeft(text, " \t"), "=")
			if !isParam || len(list) == 0 {
				list = append(list, challenge{strings.ToLower(word), map[string]string{}})
				continue
			}
			var value string
			value, text = cutValue(strings.TrimLeft(rest, " \t"))
			list[len(list)-1].params[strings.ToLower(word)] = value
		}
	}
	return list
}

// cutToken cuts a token (RFC 9110, 5.6.2) off the front; "" where there is none.
func cutToken(text string) (token, rest string) {
	end := strings.IndexFunc(text, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
	if end < 0 {
		end = len(text)
	}
	return text[:end], text[end:]
}

// cutValue cuts a token or a quoted string off the front.
func cutValue(text string) (value, rest string) {
	if !strings.HasPrefix(text, `"`) {
		return cutToken(text)
	}
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '"':
			return b.String(), text[i+1:]
		case '\\':
			if i++; i == len(text) {
				return "", ""
			}
		}
		b.WriteByte(text[i])
	}
	return "", "" // not closed
}
