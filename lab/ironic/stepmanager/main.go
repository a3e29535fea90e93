// Command stepmanager is a hardware manager that is an executable, for the tests of lab/ironic. Each of its steps
// reports to the test that it runs, in which version of the manager and in which boot of the machine. The step restart
// requests a reboot, the step report does not. Automated cleaning runs both. If the linker has set deployStep, the
// manager has only a deploy step of this name, which runs on request.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// Set by the linker.
var version, reportURL, deployStep string

type object map[string]any

func main() {
	m := object{"type": "result"}
	if result, err := answer(); err != nil {
		m = object{"type": "error", "message": err.Error()}
	} else {
		m["result"] = result
	}
	if err := json.NewEncoder(os.Stdout).Encode(m); err != nil {
		os.Exit(1)
	}
}

// answer reads the request and returns its result.
func answer() (any, error) {
	line, err := bufio.NewReader(os.Stdin).ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	var request struct {
		Method, Step string
		Args         struct{ Note string }
	}
	if err := json.Unmarshal(line, &request); err != nil {
		return nil, err
	}
	switch request.Method {
	case "describe":
		step := func(name string, priority int, reboot bool) object {
			return object{
				"kind": "clean", "step": name, "priority": priority, "interface": "deploy",
				"abortable": true, "reboot_requested": reboot,
				"argsinfo": object{"note": object{"description": "Text that is reported to the test."}},
			}
		}
		steps := []object{step("restart", 50, true), step("report", 40, false)}
		if deployStep != "" {
			steps = []object{{
				"kind": "deploy", "step": deployStep, "priority": 0, "interface": "deploy",
				"abortable": true, "reboot_requested": false, "argsinfo": object{},
			}}
		}
		return object{"protocol": 1, "name": "lab_steps", "version": version, "steps": steps}, nil
	case "evaluate":
		return object{"level": 2}, nil
	case "run":
		return nil, report(request.Step, request.Args.Note)
	}
	return nil, errors.New("unknown method " + request.Method)
}

// report tells the test that a step runs, and waits until the test allows the step to end.
func report(step, note string) error {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	client := http.Client{Timeout: 10 * time.Minute}
	form := url.Values{
		"step": {step}, "note": {note}, "version": {version}, "boot": {strings.TrimSpace(string(boot))},
	}
	response, err := client.PostForm(reportURL, form) //nolint:noctx // the client has a time limit
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // only read
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}
