package agent

import (
	"regexp"

	"ironroot/agent/config"
	"ironroot/agent/journal"
)

// minSecretLength is the minimum length of a kernel parameter's value that is redacted because of the parameter's name.
// Redacting a "1" would mask every such digit in the log.
const minSecretLength = 6

// secretive matches the names of parameters whose values are secrets.
var secretive = regexp.MustCompile(`(?i)passw|pwd|secret|token|credential`)

// redactSecrets registers the secrets of the configuration with the journal.
func redactSecrets(j *journal.Journal, c *config.Config) {
	j.Redact(c.AgentToken)
	j.Redact(c.ImageServerPassword)
	j.RedactURLs(c.APIURL)
	j.RedactURLs(c.InspectionCallbackURL)
	j.RedactURLs(c.EraseEvidenceURL)
	for name, value := range c.Params {
		redactParam(j, name, value)
	}
}

// RedactCmdline registers the secrets of a kernel command line with the journal, because the kernel's log contains the
// whole line and is part of the log archive. It includes parameters of other programs, and those that later ones with
// the same name replace.
func RedactCmdline(j *journal.Journal, line string) {
	for name, value := range config.AllParams(line) {
		redactParam(j, name, value)
	}
}

// redactParam registers the secrets in the value of a kernel parameter.
func redactParam(j *journal.Journal, name, value string) {
	j.RedactURLs(value)
	if name == "ipa-agent-token" || name == "rootpwd" || secretive.MatchString(name) && len(value) >= minSecretLength {
		j.Redact(value)
	}
}
