package agent

import (
	"regexp"

	"ironroot/agent/config"
	"ironroot/agent/journal"
)

// minSecretLength is the minimum length of a kernel parameter's value that is redacted because of the parameter's name.
// Redacting a "1" would mask every such digit in the log.
const minSecretLength = 6

// redactSecrets registers the secrets of the configuration with the journal. It includes kernel parameters of other
// programs, because the kernel's log contains the whole command line and is part of the log archive.
func redactSecrets(j *journal.Journal, c *config.Config) {
	for _, secret := range []string{
		c.AgentToken, c.ImageServerPassword, c.Params["ipa-agent-token"], c.Params["rootpwd"],
	} {
		j.Redact(secret)
	}
	j.RedactURLs(c.APIURL)
	j.RedactURLs(c.InspectionCallbackURL)
	j.RedactURLs(c.EraseEvidenceURL)
	secretive := regexp.MustCompile(`(?i)passw|pwd|secret|token|credential`)
	for name, value := range c.Params {
		j.RedactURLs(value)
		if secretive.MatchString(name) && len(value) >= minSecretLength {
			j.Redact(value)
		}
	}
}
