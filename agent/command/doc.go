// Package command runs the commands of the agent's REST API and remembers their results.
//
// The rules are ironic-python-agent's: one command at a time. Synchronous commands run within their request,
// asynchronous ones continue after it. Every command stays in the list, in order, because the conductor reads the state
// of a deployment from the list. The list starts again when Ironic starts a new session with the agent.
//
// # Records stay, large results do not
//
// Ironic reads the state of a deployment from the list of commands: it looks for the latest command, for the latest one
// of a name, and whether a step was executed since the start. So no record is removed or moved while Ironic could need
// it. The latest 1,000 records stay, enough for many deployments. ironic-python-agent keeps all; on a node that runs in
// fast track for months, the list that Ironic fetches at each heartbeat would grow without limit. Only another session
// empties the list.
//
// Results can be large: a log archive has several MiB, and the result of a step contains the step's config drive.
// Ironic reads the result only of the latest command, and of earlier ones the name and the state. So the result of the
// latest command is always complete. Earlier results are replaced by a note if they exceed 4 MiB together, or 64 KiB
// each if a later one does, too.
//
// # No command follows a lockdown or a rescue
//
// A lockdown ends logins, exports and network disks while the API still answers, which can take more than a minute. A
// confirmed rescue waits two seconds for running requests. A command that ran meanwhile could export the disk again,
// write to it, or contradict the first: a rescue of a machine that is being locked down, or a lockdown of one whose
// user is about to log in. So the first of the two that succeeds is the last command of the process. The registry
// refuses all others, including commands that waited for their turn and commands of a flow.
//
// If the command that succeeded is sent again with the same parameters, the answer is its record: Ironic repeats a
// command whose answer does not arrive in time, and would otherwise report that the rescue has failed. The error for
// other commands is InvalidCommandError with status 400. Status 409 (AgentIsBusy) would make Ironic send the command
// again after the next heartbeat, and there is none.
package command
