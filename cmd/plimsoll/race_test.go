//go:build race

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// raceFactor is the additional need for memory of a process with the race detector (its
// documentation says five to ten times).
const raceFactor = 5

// plainCommands are the commands that run as a program without the race detector: each is one
// client, which is over soon, and the detector takes five times as long to start as the program.
const plainCommands = "submit|run|job|task|node|queue|events|history|usage|at|explain|place|policy|config|simulate"

// choice is the script that starts one of the two programs.
const choice = `#!/bin/sh
case $1 in
%s) exec %s "$@" ;;
*) exec %s "$@" ;;
esac
`

// quickCommands puts a program in front of the path that starts plainCommands without the race
// detector and everything else, as all roles, with it. It is built as make build does.
func quickCommands(dir string) error {
	raced, err := exec.LookPath("plimsoll")
	if err != nil {
		return err
	}
	plain := filepath.Join(dir, "plain")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", plain, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the program: %w\n%s", err, said)
	}
	script := fmt.Appendf(nil, choice, plainCommands, plain, raced)
	if err := os.WriteFile(filepath.Join(dir, "plimsoll"), script, 0o755); err != nil {
		return err
	}
	return os.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}
