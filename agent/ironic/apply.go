package ironic

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"ironroot/agent/config"
	"ironroot/agent/node"
	"ironroot/agent/token"
)

// LookupConfig is the object config of a lookup response, by key. Legacy responses have none.
type LookupConfig map[string]json.RawMessage

// AdoptToken stores the token of the response in tok, if tok accepts it. inspected is the UUID that the inspection
// returned, "" without one. A token that the operator set is replaced only if the response is about the known node: the
// cached node, otherwise the inspected one. AdoptToken must be called before Apply, which replaces the cached node.
func (a *Answer) AdoptToken(tok *token.Token, cache *node.Cache, inspected string, log *slog.Logger) token.Outcome {
	known := inspected
	if n := cache.Get(); n != nil {
		known = n.UUID()
	}
	secret, _ := a.Config.value("agent_token").(string)
	outcome := tok.Adopt(secret, known == "" || known == a.Node.UUID())
	if outcome == token.Rejected {
		log.Warn("token in lookup response ignored, preset token kept", "node", a.Node.UUID(), "known_node", known)
	}
	return outcome
}

// Apply stores the node and the configuration of the response. Invalid values are logged and ignored; they never fail a
// lookup. Log lines can quote values, so the caller must redact the adopted token first.
func (a *Answer) Apply(live *config.Live, cache *node.Cache, log *slog.Logger) {
	cache.Set(a.Node)
	cache.SetSkipBMCDetect(a.Config.isTrue("agent_skip_bmc_detect"))
	live.Update(func(c *config.Config) { a.Config.apply(c, log) })
}

// apply sets the options that the conductor controls. Unknown keys are ignored.
func (l LookupConfig) apply(c *config.Config, log *slog.Logger) {
	set := func(option string, value any) {
		if err := c.Set(option, value); err != nil {
			log.Warn("value in lookup response ignored", "err", err)
		}
	}
	for key, option := range map[string]string{
		"agent_md5_checksum_enable": "md5_enabled", "disable_deep_image_inspection": "disable_deep_image_inspection",
		"permitted_image_formats": "permitted_image_formats", "tls_min_version": "tls_min_version",
		"tls_cipher_suites": "tls_cipher_suites",
	} {
		if value := l.value(key); value != nil && value != "" {
			set(option, value)
		}
	}
	// Ironic can only enable this option: it must not disable it if the operator of the ramdisk enabled it.
	if l.isTrue("enable_bios_bootloader_install") {
		set("enable_bios_bootloader_install", true)
	}
	for key, group := range map[string]string{
		"agent_containers": "container", "metrics": "metrics", "metrics_statsd": "metrics_statsd",
	} {
		values, ok := l.value(key).(map[string]any)
		if !ok {
			if value := l.value(key); value != nil {
				log.Warn("value in lookup response ignored", "key", key,
					"err", fmt.Errorf("got %T, want an object", value))
			}
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(values)) {
			// Ironic sends prepend_uuid, but no agent supports it.
			if values[name] != nil && name != "prepend_uuid" {
				set(group+"."+name, values[name])
			}
		}
	}
}

// value returns the decoded value of a key, nil if it is missing.
func (l LookupConfig) value(key string) any {
	var value any
	if json.Unmarshal(l[key], &value) != nil {
		return nil
	}
	return value
}

// truth reports whether a key is true.
func (l LookupConfig) isTrue(key string) bool {
	value, _ := l.value(key).(bool)
	return value
}
