package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestDevScripts runs the scripts of testdata/script/dev, each against a dev of its own, as
// PLIMSOLL_SERVER names it, and LEADER its coordinator. Beside the commands of testscript they
// have: until REGEXP PROGRAM ARGS..., which runs a program again until it succeeds and its stdout
// matches.
func TestDevScripts(t *testing.T) {
	scripts, err := filepath.Glob("testdata/script/dev/*.txtar")
	if err != nil || len(scripts) < 7 {
		t.Fatalf("%v, %v", scripts, err)
	}
	examples := examplesDir(t)
	for _, script := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(script), ".txtar"), func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.dev(append([]string{"--log-level", "warn"}, devFlags[filepath.Base(script)]...)...)
			testscript.RunT(scriptT{t}, testscript.Params{
				Files: []string{script}, UpdateScripts: *update, RequireExplicitExec: true,
				Deadline: time.Now().Add(patience),
				Cmds:     map[string]func(ts *testscript.TestScript, neg bool, args []string){"until": until},
				Setup: func(env *testscript.Env) error {
					env.Setenv("EXAMPLES", examples)
					env.Setenv("PLIMSOLL_SERVER", s.address)
					env.Setenv("LEADER", "unix:"+filepath.Join(s.data(), "coordinator.sock"))
					env.Setenv("DATA", s.data())
					env.Setenv("GORACE", raceOptions)
					// tasks of any user look into the directories of the scripts
					return errors.Join(os.Chmod(env.WorkDir, 0o755), os.Chmod(filepath.Dir(env.WorkDir), 0o755))
				},
			})
		})
	}
}

// scriptT runs a script at once. It waits for no place beside other tests, as its parent has one:
// the time of a script begins when testscript is called.
type scriptT struct{ *testing.T }

// Run implements testscript.T.
func (t scriptT) Run(name string, f func(testscript.T)) {
	t.T.Run(name, func(t *testing.T) { f(scriptT{t}) })
}

// Parallel implements testscript.T.
func (scriptT) Parallel() {}

// Verbose implements testscript.T.
func (scriptT) Verbose() bool { return testing.Verbose() }

// devFlags are further flags of the dev of a script.
var devFlags = map[string][]string{
	"archived.txtar": {"--keep-ended", "1ms"}, "eventsettings.txtar": {"--history", "none"},
	"trust.txtar": {"--trust-owner"},
}

// until lets a script wait for a condition.
func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until regexp program args...")
	}
	re, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ts.Exec(args[1], args[2:]...)
		stdout := ts.ReadFile("stdout")
		if err == nil && re.MatchString(stdout) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			ts.Fatalf("%v does not print %s: %v\n%s", args[1:], args[0], err, stdout)
		}
	}
}
