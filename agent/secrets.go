package agent

import (
	"regexp"

	"ironroot/agent/config"
	"ironroot/agent/journal"
)

// shortest is how long a kernel parameter's value must be to be taken for a secret because of its name: a "1" would take
// every digit of that sort out of the log.
const shortest = 6

// hush registers the secrets of the configuration. The kernel's own log, which is part of the archive of logs, repeats
// the whole command line, also what is meant for others.
func hush(j *journal.Journal, c *config.Config) {
	for _, secret := range []string{c.AgentToken, c.ImageServerPassword, c.Params["ipa-agent-token"], c.Params["rootpwd"]} {
		j.Redact(secret)
	}
	j.RedactURLs(c.APIURL)
	j.RedactURLs(c.InspectionCallbackURL)
	secretive := regexp.MustCompile(`(?i)passw|pwd|secret|token|credential`)
	for name, value := range c.Params {
		j.RedactURLs(value)
		if secretive.MatchString(name) && len(value) >= shortest {
			j.Redact(value)
		}
	}
}
