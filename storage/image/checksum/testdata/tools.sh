#!/bin/bash
# Prints tools.txt: commands, and what they write about the files below. Made with coreutils 9.1, OpenSSL 3.0, busybox
# 1.35, Perl 5.36, rhash 1.4.3, 7-Zip 26.02 and hashdeep 4.4. image.raw contains "abc".
set -e
cd "$(mktemp -d)"
mkdir images other
printf abc | tee image.raw images/image.raw >'im\age.raw'
printf abc | tee $'ima\nge.raw' >'image (1) = x.raw'
printf abc >$(printf 'im\344ge.raw') # Latin-1
printf other | tee other.raw my-image.raw >other/other.raw
while read -r command; do
	printf '$ %s\n' "$command"
	eval "$command"
done <<-'END'
	sha256sum other.raw my-image.raw image.raw
	sha256sum -b other/other.raw ./image.raw
	sha512sum --tag other.raw image.raw
	sha384sum my-image.raw im?age.raw ima?ge.raw image\ *.raw im?ge.raw
	sha256sum --tag other.raw im?age.raw ima?ge.raw image\ *.raw im?ge.raw
	cksum -a sha224 image.raw
	cksum -a blake2b -l 512 ./image.raw
	md5sum other/other.raw images/image.raw
	openssl dgst -sha512 other.raw image.raw
	openssl dgst -sha3-256 image.raw
	openssl dgst -r -sha256 images/image.raw
	busybox sha256sum other.raw images/image.raw
	busybox md5sum im?age.raw
	shasum -a 512 -b other.raw image.raw
	shasum -a 384 --tag image.raw
	rhash --uppercase --sha256 other.raw image.raw
	rhash --bsd --sha256 --md5 other.raw image.raw
	rhash --sha256 --sha512 other.raw images/image.raw
	rhash --sfv --sha256 other.raw image.raw
	sha256deep -l other.raw images/image.raw
	7z h -scrcSHA256 other.raw image.raw | tail -n +8
END
