package config

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

var (
	ntpServer  = regexp.MustCompile(`^[A-Za-z0-9.:_-]{1,253}$`)
	apiVersion = regexp.MustCompile(`^[0-9]{1,6}\.[0-9]{1,6}$`)
)

// checkString checks a text against the option's choices and form.
func (o option) checkString(text string) error {
	if len(o.choices) > 0 && !slices.Contains(o.choices, text) {
		return fmt.Errorf("got %q, want one of %s", text, strings.Join(o.choices, ", "))
	}
	if text == "" {
		return nil
	}
	switch o.check {
	case "urls":
		return checkURLs(text)
	case "ntp":
		// The name comes from the network, and is logged and resolved.
		if _, err := netip.ParseAddr(text); err != nil && !ntpServer.MatchString(text) {
			return fmt.Errorf("got %q, want a host name or an IP address", text)
		}
	case "version":
		if !apiVersion.MatchString(text) {
			return fmt.Errorf("got %q, want MAJOR.MINOR", text)
		}
	}
	return nil
}

// checkURLs accepts "mdns" or a list of http and https URLs.
func checkURLs(text string) error {
	if text == "mdns" {
		return nil
	}
	for _, url := range splitList(text) {
		if !strings.HasPrefix(url, "http://") && !strings.HasPrefix(url, "https://") {
			return fmt.Errorf("got %q, want mdns or URLs that start with http:// or https://", text)
		}
	}
	return nil
}

// APIURLs returns the URLs of the option api_url without trailing slashes, and nil for "mdns".
func (c *Config) APIURLs() []string { return urls(c.APIURL, true) }

// InspectionCallbackURLs returns the URLs of the option inspection_callback_url, and nil for "mdns".
func (c *Config) InspectionCallbackURLs() []string { return urls(c.InspectionCallbackURL, false) }

func urls(text string, trim bool) []string {
	if text == "mdns" {
		return nil
	}
	list := splitList(text)
	if trim {
		for i, url := range list {
			list[i] = strings.TrimRight(url, "/")
		}
	}
	return list
}
