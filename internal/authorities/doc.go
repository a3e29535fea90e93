// Package authorities reads files with certificate authorities. Unlike [x509.CertPool.AppendCertsFromPEM], it drops
// nothing silently.
//
// # Certificates that OpenSSL accepts and Go rejects
//
// Programs in Python trust every authority that OpenSSL can parse. Go rejects some, and
// [x509.CertPool.AppendCertsFromPEM] drops them silently; then the connection fails with an unknown authority. Of the
// settings of Go that accept more, go.mod has one: x509negativeserial=1. Authorities of proxies have negative serial
// numbers, and a serial number authenticates nothing. A custom /init is built in a workspace, where Go ignores go.mod:
// the builder copies the setting into go.work. Other settings stay off:
//
//   - rsa1024min=0: keys below 1024 bits can be factored; OpenSSL of Debian rejects them at its default level, too.
//   - x509sha1: Go has removed it. The signature of a root is not verified, so roots with SHA-1 work.
//   - x509usepolicies, x509rsacrt, x509keypairleaf: certificates of authorities are parsed alike with and without them.
//   - tlsrsakex, tls3des, tlssha1, tls10server: they are about connections, weaken them, and no authority needs them.
//
// Other certificates, for example with curves of Brainpool, Ed448 or malformed names, need code that Go does not have.
// OpenSSL's TRUSTED CERTIFICATE is rejected because it can contain purposes that it is not trusted for.
package authorities
