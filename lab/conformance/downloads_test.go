//go:build linux

package conformance

import (
	"encoding/base64"
	"fmt"
	"maps"
	"strings"
)

// checksumTable are images with checksums in every form.
func checksumTable() []imageRow {
	var rows []imageRow
	add := func(name string, info object) {
		rows = append(rows, imageRow{
			name: "checksum/" + name, file: "mbr.raw", format: "raw", stream: true, info: info,
		})
	}
	// only is an image_info with checksum instead of os_hash_algo and os_hash_value.
	only := func(checksum any) object {
		return object{"checksum": checksum, "os_hash_algo": gone{}, "os_hash_value": gone{}}
	}
	hash := func(algorithm, value any) object { return object{"os_hash_algo": algorithm, "os_hash_value": value} }
	const sha256, sha512 = "{sha256 mbr.raw}", "{sha512 mbr.raw}"

	add("sha512", hash("sha512", sha512))
	add("algorithm in capitals", hash("SHA256", sha256))
	add("md5", hash("md5", "{md5 mbr.raw}"))
	add("sha1", hash("sha1", strings.Repeat("0", 40)))
	add("unknown algorithm", hash("whirlpool", sha512))
	add("unknown algorithm and a checksum", joined(hash("whirlpool", sha512), object{"checksum": sha256}))
	add("wrong", hash("sha256", "{sha256 gpt.raw}"))
	add("wrong, and the right checksum", joined(hash("sha256", "{sha256 gpt.raw}"), object{"checksum": sha256}))
	add("right, and a wrong checksum", object{"checksum": "{sha256 gpt.raw}"})
	add("of another length", hash("sha512", sha256))
	add("no hexadecimal digits", hash("sha256", strings.Repeat("x", 64)))
	add("with white space", hash("sha256", " "+sha256+"\n"))
	add("value only", object{"os_hash_algo": gone{}})
	add("algorithm only", object{"os_hash_value": gone{}})
	add("algorithm null", hash(nil, sha256))
	add("value empty", hash("sha256", ""))
	add("value a number", hash("sha256", 7))
	add("none", only(gone{}))
	add("checksum of 64", only(sha256))
	add("checksum of 128", only(sha512))
	add("checksum of 32", only("{md5 mbr.raw}"))
	add("checksum of 40", only(strings.Repeat("0", 40)))
	add("checksum of 64, wrong", only("{sha256 gpt.raw}"))
	add("checksum empty", only(""))
	add("checksum null", only(nil))
	add("checksum a number", only(7))
	add("checksum of 32 beside a hash", object{"checksum": "{md5 mbr.raw}"})
	for _, name := range []string{"one", "many", "bsd", "other", "none", "wrong", "comment", "missing"} {
		add("file "+name, only(imageURL+"/"+name+".sums"))
	}
	add("file as the hash", hash("sha256", imageURL+"/one.sums"))
	add("file of another algorithm", hash("sha512", imageURL+"/one.sums"))
	add("file of two algorithms", hash("sha256", imageURL+"/many.sums"))
	add("file at ftp", only("ftp://10.0.2.2/sums"))
	return rows
}

// joined returns the keys of both objects. Keys of the second one replace keys of the first.
func joined(first, second object) object {
	result := object{}
	maps.Copy(result, first)
	maps.Copy(result, second)
	return result
}

// downloadTable are images on servers that fail, redirect or require authorization.
func downloadTable() []imageRow {
	gate := fmt.Sprintf("http://%s:%d", hostAddress, gatePort)
	nobody := fmt.Sprintf("http://%s:1/mbr.raw", hostAddress)
	good := imageURL + "/mbr.raw"
	var rows []imageRow
	add := func(name string, info object, urls ...any) {
		info = joined(info, object{"urls": urls})
		rows = append(rows, imageRow{
			name: "download/" + name, file: "mbr.raw", format: "raw", stream: true, info: info,
		})
	}
	basic := func(user, password any) object {
		return object{
			"image_server_auth_strategy": "http_basic", "image_server_user": user, "image_server_password": password,
		}
	}
	header := func(text string) object {
		return object{"image_request_authorization": base64.StdEncoding.EncodeToString([]byte(text))}
	}
	for _, status := range []int{401, 403, 404, 410, 500, 503, 204, 206} {
		add(fmt.Sprintf("status %d", status), nil, fmt.Sprintf("%s/%d/mbr.raw", gate, status))
	}
	add("no server", nil, nobody)
	add("half", nil, gate+"/cut/mbr.raw")
	add("without a length", nil, gate+"/late/mbr.raw")
	add("redirect", nil, gate+"/redirect/mbr.raw")
	add("redirect loop", nil, gate+"/loop/mbr.raw")
	add("second of two, 500", nil, gate+"/500/mbr.raw", good)
	add("second of two, 404", nil, gate+"/404/mbr.raw", good)
	add("second of two, no server", nil, nobody, good)
	add("second of two, half", nil, gate+"/cut/mbr.raw", good)
	add("second of two, another image", nil, imageURL+"/gpt.raw", good)
	add("two that fail", nil, gate+"/500/mbr.raw", gate+"/503/mbr.raw")
	add("no urls", nil)
	add("url null", nil, nil)
	add("url without a scheme", nil, "10.0.2.2/mbr.raw")
	add("url of ftp", nil, "ftp://10.0.2.2/mbr.raw")
	add("url of a file", nil, "file:///etc/passwd")
	add("basic", basic("user", "secret"), gate+"/basic/mbr.raw")
	add("basic, wrong password", basic("user", "other"), gate+"/basic/mbr.raw")
	add("basic without a password", basic("user", nil), gate+"/basic/mbr.raw")
	add("basic without user and password", object{"image_server_auth_strategy": "http_basic"}, good)
	add("basic, not needed", basic("user", "secret"), good)
	add("strategy noauth", joined(basic("user", "secret"), object{"image_server_auth_strategy": "noauth"}),
		gate+"/basic/mbr.raw")
	add("strategy unknown", joined(basic("user", "secret"), object{"image_server_auth_strategy": "digest"}),
		gate+"/basic/mbr.raw")
	add("header", header("Bearer letmein"), gate+"/bearer/mbr.raw")
	add("header, wrong", header("Bearer other"), gate+"/bearer/mbr.raw")
	add("header and basic", joined(basic("user", "secret"), header("Bearer letmein")), gate+"/bearer/mbr.raw")
	add("header, not base64", object{"image_request_authorization": "%%%"}, gate+"/bearer/mbr.raw")
	add("proxy", object{"proxies": object{"http": gate}}, "http://images.invalid/mbr.raw")
	add("proxy without a scheme", object{"proxies": object{"http": strings.TrimPrefix(gate, "http://")}},
		"http://images.invalid/mbr.raw")
	add("proxy of another scheme", object{"proxies": object{"https": gate}}, good)
	add("proxy, but not for this host", object{
		"proxies": object{"http": gate + "/404"}, "no_proxy": hostAddress,
	}, good)
	add("proxy that is not there", object{
		"proxies": object{"http": strings.TrimSuffix(nobody, "/mbr.raw")},
	}, "http://images.invalid/mbr.raw")
	add("proxies of text", object{"proxies": gate}, good)
	return rows
}
