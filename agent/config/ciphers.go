package config

import (
	"crypto/fips140"
	"crypto/tls"
	"slices"
	"strings"
)

// suite is a TLS 1.2 cipher suite of crypto/tls that the agent supports, with its OpenSSL name and the groups of
// openssl-ciphers(1), except for ALL, that contain it. Suites with RC4 and 3DES are not supported.
type suite struct {
	id       uint16
	name     string
	strength int // in bits
	groups   string
}

// suites returns all suites in the order of OpenSSL's default list. In FIPS 140-3 mode, these are the ones that
// crypto/tls uses in this mode.
func suites() []suite {
	all := allSuites()
	if fips140.Enabled() {
		return slices.DeleteFunc(all, func(s suite) bool { return !s.in("ECDHE") || !s.in("AESGCM") })
	}
	return all
}

func allSuites() []suite {
	const (
		ecdsa  = "kECDHE kEECDH ECDHE EECDH aECDSA ECDSA HIGH "
		ecrsa  = "kECDHE kEECDH ECDHE EECDH aRSA HIGH "
		rsa    = "kRSA aRSA RSA HIGH "
		gcm256 = "AES AESGCM AES256 TLSv1.2 "
		gcm128 = "AES AESGCM AES128 TLSv1.2 "
		chacha = "CHACHA20 TLSv1.2 "
		sha256 = "AES AES128 SHA256 TLSv1.2 "
		cbc256 = "AES AES256 SHA SHA1 "
		cbc128 = "AES AES128 SHA SHA1 "
		tls10  = "TLSv1 TLSv1.0 "

		gcm256SuiteB = gcm256 + "SUITEB128 SUITEB192"
		gcm128SuiteB = gcm128 + "SUITEB128"
	)
	return []suite{
		{tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, "ECDHE-ECDSA-AES256-GCM-SHA384", 256, ecdsa + gcm256SuiteB},
		{tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, "ECDHE-RSA-AES256-GCM-SHA384", 256, ecrsa + gcm256},
		{tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, "ECDHE-ECDSA-CHACHA20-POLY1305", 256, ecdsa + chacha},
		{tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256, "ECDHE-RSA-CHACHA20-POLY1305", 256, ecrsa + chacha},
		{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, "ECDHE-ECDSA-AES128-GCM-SHA256", 128, ecdsa + gcm128SuiteB},
		{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, "ECDHE-RSA-AES128-GCM-SHA256", 128, ecrsa + gcm128},
		{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256, "ECDHE-ECDSA-AES128-SHA256", 128, ecdsa + sha256},
		{tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256, "ECDHE-RSA-AES128-SHA256", 128, ecrsa + sha256},
		{tls.TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA, "ECDHE-ECDSA-AES256-SHA", 256, ecdsa + cbc256 + tls10},
		{tls.TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA, "ECDHE-RSA-AES256-SHA", 256, ecrsa + cbc256 + tls10},
		{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, "ECDHE-ECDSA-AES128-SHA", 128, ecdsa + cbc128 + tls10},
		{tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA, "ECDHE-RSA-AES128-SHA", 128, ecrsa + cbc128 + tls10},
		{tls.TLS_RSA_WITH_AES_256_GCM_SHA384, "AES256-GCM-SHA384", 256, rsa + gcm256},
		{tls.TLS_RSA_WITH_AES_128_GCM_SHA256, "AES128-GCM-SHA256", 128, rsa + gcm128},
		{tls.TLS_RSA_WITH_AES_128_CBC_SHA256, "AES128-SHA256", 128, rsa + sha256},
		{tls.TLS_RSA_WITH_AES_256_CBC_SHA, "AES256-SHA", 256, rsa + cbc256 + "SSLv3"},
		{tls.TLS_RSA_WITH_AES_128_CBC_SHA, "AES128-SHA", 128, rsa + cbc128 + "SSLv3"},
	}
}

// emptyGroups lists the groups of openssl-ciphers(1) that contain no supported suite.
const emptyGroups = "" +
	"COMPLEMENTOFDEFAULT COMPLEMENTOFALL MEDIUM LOW EXP EXPORT eNULL NULL aNULL kDHr kDHd kDH kDHE kEDH DH " +
	"DHE EDH ADH AECDH aDSS DSS aDH aECDH kECDHr kECDHe kECDH AESCCM AESCCM8 ARIA ARIA128 ARIA256 ARIAGCM " +
	"CAMELLIA CAMELLIA128 CAMELLIA256 3DES DES RC4 RC2 IDEA SEED MD5 aGOST aGOST01 kGOST GOST94 GOST89MAC PSK " +
	"kPSK kECDHEPSK kDHEPSK kRSAPSK aPSK SRP aSRP kSRP CBC"

// in reports whether a suite has the name or is in the group of that name.
func (s suite) in(name string) bool {
	return s.name == name || name == "ALL" || name == "DEFAULT" || slices.Contains(strings.Fields(s.groups), name)
}

// known reports whether a name denotes a suite or a group.
func known(name string) bool {
	return slices.Contains(strings.Fields(emptyGroups), name) ||
		slices.ContainsFunc(suites(), func(s suite) bool { return s.in(name) })
}

// cipherList evaluates an OpenSSL cipher list as openssl-ciphers(1) describes it. ignored are the elements that have
// no effect because they name no supported suite and no group.
func cipherList(text string) (chosen []suite, ignored []string) {
	banned := map[uint16]bool{}
	for _, element := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(":,; ", r) }) {
		operator, names := "", element
		if strings.ContainsRune("!-+", rune(element[0])) {
			operator, names = element[:1], element[1:]
		}
		switch {
		case element == "@STRENGTH":
			slices.SortStableFunc(chosen, func(a, b suite) int { return b.strength - a.strength })
			continue
		case strings.HasPrefix(element, "@SECLEVEL="):
			continue // crypto/tls rejects weak keys itself
		case slices.ContainsFunc(strings.Split(names, "+"), func(name string) bool { return !known(name) }):
			if operator != "!" && operator != "-" { // unsupported suites are never selected
				ignored = append(ignored, element)
			}
			continue
		}
		matches := func(s suite) bool {
			return !slices.ContainsFunc(strings.Split(names, "+"), func(name string) bool { return !s.in(name) })
		}
		kept := slices.DeleteFunc(slices.Clone(chosen), matches)
		switch operator {
		case "!":
			for _, s := range suites() {
				banned[s.id] = banned[s.id] || matches(s)
			}
			chosen = kept
		case "-":
			chosen = kept
		case "+": // moves selected suites to the end
			moved := slices.DeleteFunc(slices.Clone(chosen), func(s suite) bool { return !matches(s) })
			chosen = append(kept, moved...)
		default:
			for _, s := range suites() {
				isChosen := slices.ContainsFunc(chosen, func(c suite) bool { return c.id == s.id })
				if matches(s) && !banned[s.id] && !isChosen {
					chosen = append(chosen, s)
				}
			}
		}
	}
	return chosen, ignored
}
