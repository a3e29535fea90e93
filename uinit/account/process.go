package account

import "path"

// SearchPath is the variable PATH of users: the directories of programs, on Debian and in the ramdisk.
const SearchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/bbin"

// Environment returns the variables of the user's processes that depend on nothing but the user, as NAME=VALUE.
func (a *Account) Environment() []string {
	return []string{
		"HOME=" + a.Home, "USER=" + a.Name, "LOGNAME=" + a.Name, "SHELL=" + a.Shell, "PATH=" + SearchPath,
	}
}

// LoginShell returns argument 0 of the user's shell that makes it a login shell. u-root's gosh has no such mode.
func (a *Account) LoginShell() string {
	if name := path.Base(a.Shell); name != "gosh" {
		return "-" + name
	}
	return "gosh"
}
