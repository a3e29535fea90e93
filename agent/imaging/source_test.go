package imaging

import "ironroot/storage/image/fetch"

// source returns the source of an image at a URL.
func source(address, format string, d Digest) Source {
	u, err := fetch.ParseURL(address)
	if err != nil {
		panic(err)
	}
	return Source{URLs: []fetch.URL{u}, Format: format, Digest: d}
}

// sha256Digest returns a digest with these digits, or from the checksum file with this URL.
func sha256Digest(value string) Digest { return selectDigest("", "sha256", value) }

// proxies returns the proxies of a test.
func proxies(texts map[string]string, noProxy string) Proxies {
	p := Proxies{direct: parseNoProxy(noProxy)}
	for scheme, text := range texts {
		u, err := parseProxy(text)
		if err != nil {
			panic(err)
		}
		p.set(scheme, proxy{text, u})
	}
	return p
}

// redirect changes the URL of an image.
func redirect(i *ImageInfo, address string) { i.Source.URLs = source(address, "", Digest{}).URLs }
