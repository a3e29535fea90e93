package agent

import "slices"

// warnOptions logs settings that have no effect, each once per process, and cipher names that are not supported.
func (a *agent) warnOptions() {
	c := a.config.Get()
	for _, setting := range c.Unused() {
		if !slices.Contains(a.reportedSettings, setting.Name) {
			a.reportedSettings = append(a.reportedSettings, setting.Name)
			a.log.Warn("setting has no effect", "name", setting.Name, "reason", setting.Reason)
		}
	}
	if c.TLSCipherSuites != a.checkedCiphers {
		a.checkedCiphers = c.TLSCipherSuites
		c.WarnCiphers(a.log)
	}
}
