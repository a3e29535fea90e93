package external

import (
	"errors"
	"os"
	"slices"
	"time"
)

// process is a started executable.
type process struct {
	child
	in, out, errors *os.File // this side of its standard streams; in is nil if the program has an input of its own
}

// child is a process of the kernel.
type child interface {
	Kill() error
	// Wait returns an error unless the process ends with exit status 0.
	Wait() error
}

// osProcess implements child.
type osProcess struct{ *os.Process }

func (p osProcess) Wait() error {
	state, err := p.Process.Wait()
	if err == nil && !state.Success() {
		err = errors.New(state.String())
	}
	return err
}

// starter starts an executable.
type starter interface {
	start() (*process, error)
}

// expire makes all reads and writes of its standard streams fail after a while.
func (p *process) expire(after time.Duration) {
	end := time.Now().Add(after)
	if p.in != nil {
		p.in.SetWriteDeadline(end) //nolint:errcheck // a pipe has deadlines
	}
	p.out.SetReadDeadline(end)    //nolint:errcheck // a pipe has deadlines
	p.errors.SetReadDeadline(end) //nolint:errcheck // a pipe has deadlines
}

// program describes a program to run in namespaces of its own.
type program struct {
	Root string `json:"root,omitempty"` // path of the manager root that is its root file system, "" for the ramdisk's
	// Argv are its path and arguments. Without any, the managers in the root are printed, see printManagers.
	Argv []string `json:"argv,omitempty"`
	// Programs, unless empty, are the names of programs to find in the root instead, see printPrograms.
	Programs []string `json:"programs,omitempty"`
	// Calls are names of system calls that are permitted besides every program's.
	Calls []string `json:"calls,omitempty"`
	// input is the standard input; nil is a pipe.
	input *os.File
}

// environment is the environment of an executable.
var environment = []string{
	"PATH=/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin:/bbin", "LC_ALL=C", "HOME=/tmp",
}

// plain is the path of an executable that runs without confinement, for checks outside of the ramdisk.
type plain string

// start implements starter.
func (p plain) start() (*process, error) { return startProcess(string(p), []string{string(p)}, 0, nil) }

// startProcess starts a program with pipes as its standard streams, and with namespaces of its own. If input is not
// nil, it is the standard input. files are further files of the process, from descriptor 3.
func startProcess(
	program string, argv []string, cloneFlags uintptr, input *os.File, files ...*os.File,
) (p *process, err error) {
	var pipes []*os.File
	defer func() {
		if err != nil {
			for _, f := range pipes {
				err = errors.Join(err, f.Close())
			}
		}
	}()
	for range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		pipes = append(pipes, r, w)
	}
	theirs := []*os.File{pipes[0], pipes[3], pipes[5]}
	streams := slices.Clone(theirs)
	if input != nil {
		streams[0] = input
	}
	started, err := os.StartProcess(program, argv, &os.ProcAttr{
		Dir: "/", Env: environment, Files: append(streams, files...), Sys: attributes(cloneFlags),
	})
	if err != nil {
		return nil, err
	}
	p = &process{
		child: osProcess{started}, in: pipes[1], out: pipes[2], errors: pipes[4],
	}
	for _, f := range theirs {
		_ = f.Close() // the process has its own
	}
	if input != nil {
		_ = p.in.Close() // nothing reads it
		p.in = nil
	}
	return p, nil
}
