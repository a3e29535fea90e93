package imagetest

import (
	"io"
	"net/http"
)

// Planted is a text that a server sends in any part of a response. It must not appear in an error.
const Planted = "pl4nted.s3cret"

// PlantedResponses are complete responses by name. Together they contain the planted text in every part of a response.
var PlantedResponses = map[string]string{
	"body":         "HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n" + Planted + "\n",
	"two words":    "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n" + Planted + " name\n",
	"JSON":         "HTTP/1.1 200 OK\r\nContent-Length: 25\r\n\r\n{\"config\":\"" + Planted + "\"}",
	"digest":       "HTTP/1.1 200 OK\r\n\r\n{\"artifactType\":\"a\",\"layers\":[{\"digest\":\"" + Planted + "\"}]}",
	"token":        "HTTP/1.1 200 OK\r\n\r\n{\"token\":\"" + Planted + "\\u0000\"}",
	"gzip":         "HTTP/1.1 200 OK\r\n\r\n\x1f\x8b\x08" + Planted,
	"base64":       "HTTP/1.1 200 OK\r\n\r\nH4sI" + Planted,
	"no HTTP":      Planted + "\r\n\r\n",
	"status code":  "HTTP/1.1 " + Planted + "\r\n\r\n",
	"reason":       "HTTP/1.1 404 " + Planted + "\r\nContent-Length: 14\r\n\r\n" + Planted,
	"server error": "HTTP/1.1 500 " + Planted + "\r\nContent-Length: 14\r\n\r\n" + Planted,
	"header":       "HTTP/1.1 200 OK\r\n" + Planted + "\r\n\r\n",
	"header name":  "HTTP/1.1 200 OK\r\n" + Planted + " x: y\r\n\r\n",
	"length":       "HTTP/1.1 200 OK\r\nContent-Length: " + Planted + "\r\n\r\n",
	"encoding":     "HTTP/1.1 200 OK\r\nTransfer-Encoding: " + Planted + "\r\n\r\n",
	"chunk":        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + Planted + "\r\n",
	"range":        "HTTP/1.1 206 Partial\r\nContent-Range: " + Planted + "\r\nContent-Length: 0\r\n\r\n",
	"challenge":    "HTTP/1.1 401 No\r\nWWW-Authenticate: " + Planted + "=\"\r\nContent-Length: 0\r\n\r\n",
	"realm": "HTTP/1.1 401 No\r\nWWW-Authenticate: Bearer realm=\"http://" + Planted +
		"\"\r\nContent-Length: 0\r\n\r\n",
	"scheme":            "HTTP/1.1 302 Found\r\nLocation: " + Planted + "://host/\r\nContent-Length: 0\r\n\r\n",
	"host":              "HTTP/1.1 302 Found\r\nLocation: http://" + Planted + ".invalid/\r\nContent-Length: 0\r\n\r\n",
	"malformed target":  "HTTP/1.1 302 Found\r\nLocation: http://%zz" + Planted + "/\r\nContent-Length: 0\r\n\r\n",
	"truncated content": "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n" + Planted,
}

// Respond sends the bytes of answer on every request and closes the connection.
func Respond(answer string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()                  //nolint:errcheck // the client reads what arrived
		_, _ = io.WriteString(conn, answer) // the client may have gone
	}
}
