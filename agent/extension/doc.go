// Package extension implements the commands of the agent's REST API, with a file per extension. Names, parameters and
// results are ironic-python-agent's.
//
// # A sync has a limit, and reports what was not written
//
// Ironic calls standby.sync before it switches a machine off, also after an erase that failed with "still busy in the
// kernel". sync(2) does not return while a disk hangs, and until the command has ended no other command starts. It
// therefore fails after 10 minutes and names the operation that did not end: sync(2), the caches or a disk. Linux tries
// to flush the cache of a disk six times for up to a minute, so the limit does not affect a working disk. Ironic waits
// for the answer for 60 seconds by default ([agent]command_timeout), which is too short for a limit: a slow disk must
// have the time to write everything. run_image and power_off wait for one minute and then stop the machine.
//
// sync(2) reports no errors; the flush of a disk does, also errors of earlier writes. ironic-python-agent ignores them.
// Here only a disk that has no flush is a warning (ENOTTY, EOPNOTSUPP, EINVAL); every other error, and a disk that
// cannot be listed, fails the command.
package extension
