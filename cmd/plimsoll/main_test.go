package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/plimsoll-dev/plimsoll"
)

var update = flag.Bool("update", false, "rewrite the golden files and the expectations of the scripts")

// TestMain lets tests start this program. With the race detector they take over a minute. Only
// these tests run the roles as processes, with real tasks in real control groups: killed at random
// (TestKillDev), fed with junk (TestJunk), driven over their waterlines, and used by the scripts.
func TestMain(m *testing.M) {
	testscript.Main(leakChecked{m}, map[string]func(){
		"plimsoll": main, steppedCoordinator: runSteppedCoordinator, smallGateway: runSmallGateway,
	})
}

// leakChecked gives the tests a home directory of their own, where servers enter their tokens. It
// fails if a goroutine of a test is left.
type leakChecked struct{ m *testing.M }

// Run runs the tests and then looks for goroutines.
func (l leakChecked) Run() int {
	home, err := os.MkdirTemp("", "home")
	if err == nil {
		err = keepGoCaches()
	}
	if err == nil {
		err = errors.Join(os.Setenv("HOME", home), os.Unsetenv("XDG_CONFIG_HOME"), os.Unsetenv("SUDO_UID"))
	}
	if err == nil {
		err = quickCommands(home)
	}
	if err != nil {
		_, _ = os.Stderr.WriteString(err.Error() + "\n") // the exit code says it too
		return 1
	}
	defer func() { _ = os.RemoveAll(home) }() // left-overs in the temporary directory do no harm
	code := l.m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		_, _ = os.Stderr.WriteString(err.Error() + "\n") // the exit code says it too
		return 1
	}
	return code
}

// keepGoCaches lets the go command, which builds etcd, find its caches although HOME is another.
func keepGoCaches() error {
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH"} {
		value, err := exec.Command("go", "env", name).Output()
		if err == nil {
			err = os.Setenv(name, strings.TrimSpace(string(value)))
		}
		if err != nil {
			return fmt.Errorf("find the caches of the go command: %w", err)
		}
	}
	return nil
}

// TestScripts runs the binary as a user does. The commands of the scripts are those of testscript;
// plimsoll is this program.
func TestScripts(t *testing.T) {
	examples := examplesDir(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", UpdateScripts: *update, RequireExplicitExec: true,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){"until": until},
		Setup: func(env *testscript.Env) error {
			env.Setenv("EXAMPLES", examples)
			env.Setenv("HOME", os.Getenv("HOME"))
			env.Setenv("PLIMSOLL_RETRY_FOR", "0s")
			env.Setenv("GORACE", raceOptions)
			return nil
		},
	})
}

// examplesDir returns the directory of the examples. It reads the directory, so that go test
// notices changes there: only the program reads the files, and go test knows this process alone.
func examplesDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadDir(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// plimsollAt runs a command line in this process against a gateway.
func plimsollAt(ctx context.Context, address string, args ...string) (stdout, stderr string, code int) {
	var out, notes bytes.Buffer
	code = execute(ctx, process{
		args: append([]string{"--server", address}, args...), stdin: strings.NewReader(""), stdout: &out,
		stderr: &notes,
		now:    func() time.Time { return testNow },
	})
	return out.String(), notes.String(), code
}

// TestGolden compares the output of the commands with testdata/golden: tables for people, and JSON
// and YAML for scripts.
func TestGolden(t *testing.T) {
	for name, args := range map[string]string{
		"job-list":           "job list",
		"job-list-state":     "job list --state running",
		"job-list-json":      "job list -o json",
		"job-list-result":    "job list --result failed,killed",
		"job-list-id":        "job list --sort id -o wide",
		"job-list-name":      "job list -o name",
		"job-list-limit":     "job list --limit 2",
		"job-list-bad":       "job list --result failled",
		"job-list-both":      "job list --ended --all",
		"job-list-negative":  "job list --limit -1",
		"job-list-running":   "job list --since 1h --state running",
		"job-list-failed":    "job list --failed",
		"job-get-name":       "job get flaky -o name",
		"job-logs-no-id":     "job logs",
		"node-list-name":     "node list -o name",
		"task-list-sort":     "task list --all --sort finished",
		"task-list-running":  "task list --ended --state running",
		"task-list-no-limit": "task list --limit",
		"job-get":            "job get flaky",
		"job-get-waiting":    "job get waiting",
		"job-get-json":       "job get flaky -o json",
		"job-get-yaml":       "job get waiting -o yaml",
		"job-get-yaml-view":  "job get waiting -o yaml --view",
		"job-get-nothing":    "job get nothing",
		"job-kill":           "job kill waiting --reason enough",
		"job-kill-nothing":   "job kill nothing",
		"job-kill-several":   "job kill nothing waiting --reason enough",
		"job-scale":          "job scale waiting 5",
		"job-wait":           "job wait wordcount",
		"job-wait-failed":    "job wait flaky",
		"job-wait-json":      "job wait flaky -o json",
		"job-logs":           "job logs wordcount",
		"job-logs-task":      "job logs wordcount.map.1",
		"job-logs-stream":    "job logs wordcount --stream stderr",
		"job-logs-unstarted": "job logs waiting.map.1",
		"task-list":          "task list",
		"task-list-json":     "task list --job waiting -o json",
		"task-list-failed":   "task list --failed",
		"task-list-result":   "task list --result out-of-memory -o wide",
		"task-list-exit":     "task list --exit-code 3 -o name",
		"task-list-limit":    "task list --job flaky --limit 1",
		"task-list-both":     "task list --failed --result lost",
		"run-again":          "job run-again flaky",
		"run-again-failed":   "job run-again flaky --failed",
		"run-again-as":       "job run-again flaky --failed --as again -o json",
		"run-again-taken":    "job run-again flaky --as wordcount",
		"run-again-running":  "job run-again waiting",
		"run-again-good":     "job run-again wordcount --failed",
		"job-delete-unsure":  "job delete flaky",
		"job-get-attempts":   "job get flaky --attempts",
		"task-list-state":    "task list --state pending",
		"task-attempts":      "task attempts flaky.map.2",
		"task-attempts-json": "task attempts flaky.map.2 -o json",
		"task-attempts-none": "task attempts flaky.map.9",
		"task-list-bad":      "task list --state sleeping",
		"task-watch":         "task list --job waiting --watch",
		"task-watch-json":    "task list --job waiting --watch -o json",
		"job-watch-result":   "job list --watch --result failed",
		"node-list":          "node list",
		"node-list-json":     "node list -o json",
		"node-list-wide":     "node list -o wide",
		"node-show":          "node show n1",
		"node-show-plain":    "node show n2",
		"node-show-json":     "node show n1 -o json",
		"node-show-nothing":  "node show n3",
		"node-drain":         "node drain n1 n3",
		"node-cordon":        "node cordon n1",
		"node-uncordon":      "node uncordon n2",
		"node-remove":        "node remove n2",
		"queue-list":         "queue list",
		"queue-list-json":    "queue list -o json",
		"events":             "events",
		"events-last":        "events -n 2",
		"events-object":      "events --object wordcount",
		"events-yunikorn":    "events --words yunikorn",
		"events-object-last": "events --object wordcount -n 2",
		"events-json":        "events --start 4 -o json",
		"explain":            "explain waiting.map.1",
		"explain-job":        "explain waiting",
		"explain-nothing":    "explain nothing",
		"explain-json":       "explain waiting.map.1 -o json",
		"explain-node":       "explain waiting.map.1 --node n1",
		"explain-placed":     "explain wordcount.map.0",
		"explain-forgotten":  "explain waiting.map.0",
		"explain-no-export":  "explain waiting.map.1 --export never",
		"explain-forgot":     "explain waiting.map.0 --export never",
		"place":              "place testdata/job.yaml",
		"place-some":         "place testdata/job.yaml --count 10",
		"place-at-least":     "place testdata/job.yaml --count 5000",
		"place-json":         "place testdata/job.yaml --count 4 -o json",
		"place-no-file":      "place",
		"place-no-group":     "place testdata/job.yaml --group reduce",
		"place-none":         "place testdata/job.yaml --count 0",
		"place-too-many":     "place testdata/job.yaml --count 10001",
		"place-replay-more":  "place testdata/job.yaml --replay x.json",
		"defrag":             "defrag --plan",
		"defrag-json":        "defrag --plan -o json",
		"defrag-none":        "defrag --plan --limit 1",
		"defrag-room":        "defrag --plan --for testdata/job.yaml:main",
		"defrag-has-room":    "defrag --plan --for testdata/job.yaml --limit 2",
		"defrag-no-room":     "defrag --plan --for testdata/job.yaml:main --limit 1",
		"defrag-no-group":    "defrag --plan --for testdata/job.yaml:reduce",
		"defrag-only-plans":  "defrag",
		"defrag-limit":       "defrag --plan --limit 0",
		"node-capacity":      "node capacity",
		"node-capacity-one":  "node capacity n1",
		"node-capacity-json": "node capacity -o json",
		"node-capacity-none": "node capacity n1 n9",
		"config-print":       "config print",
		"submit":             "submit testdata/job.yaml",
		"submit-unknown":     "submit testdata/gpus.yaml",
		"submit-strict":      "submit testdata/gpus.yaml --strict",
		"submit-id":          "submit testdata/job.yaml --id other",
		"submit-json":        "submit testdata/job.yaml --id other -o json",
		"submit-wait":        "submit testdata/job.yaml --wait",
		"submit-wait-json":   "submit testdata/job.yaml --wait -o json",
		"submit-twice":       "submit testdata/job.yaml --id flaky",
		"submit-bad-id":      "submit testdata/job.yaml --id .",
		"run":                "run --id hello --owner alice --cpu 500m -e A=b;c -- echo hello",
		"run-fails":          "run --id hello --owner alice -- exit 3",
		"run-absurd":         "run --cpu 1e30 -- echo hello",
		"run-nothing":        "run",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, _ := serve(t)
			stdout, stderr, code := plimsollAt(t.Context(), address, strings.Fields(args)...)
			got := "$ plimsoll " + args + "\n" + stdout
			if stderr != "" {
				got += "-- stderr --\n" + stderr
			}
			if code != 0 {
				got += "-- exit code " + string(rune('0'+code)) + " --\n"
			}
			golden(t, name, got)
		})
	}
}

// TestLogsOfSeveralTasksAreFollowedLineByLine: the tasks' lines come in any order, but whole.
func TestLogsOfSeveralTasksAreFollowedLineByLine(t *testing.T) {
	address, _ := serve(t)
	for _, c := range []struct{ args, want string }{
		{"job logs -f wordcount", "wordcount.map.0 | second line\nwordcount.map.0 | this is wordcount.map.0\n" +
			"wordcount.map.1 | second line\nwordcount.map.1 | this is wordcount.map.1\n"},
		{"job logs -f wordcount.map.1", "second line\nthis is wordcount.map.1\n"},
	} {
		stdout, stderr, code := plimsollAt(t.Context(), address, strings.Fields(c.args)...)
		lines := slices.Sorted(strings.Lines(stdout))
		if got := strings.Join(lines, ""); got != c.want || code != 0 ||
			strings.Count(stderr, "no line end") != len(lines)/2 {
			t.Errorf("%s: exit code %d\n%s%s", c.args, code, got, stderr)
		}
	}
}

// TestProgressIsOneLineOnATerminal: the line is rewritten in place and removed at the end.
func TestProgressIsOneLineOnATerminal(t *testing.T) {
	address, _ := serve(t)
	var out, notes bytes.Buffer
	code := execute(t.Context(), process{
		args: []string{"--server", address, "submit", "testdata/job.yaml", "--wait"}, stdin: strings.NewReader(""),
		stdout: &out, stderr: &notes, live: true, now: func() time.Time { return testNow },
	})
	const wipe = "\r\x1b[K"
	want := wipe + "hello: Running, 0 of 2 done, 2 running" + wipe + "hello: Completed, 2 of 2 done" + wipe
	if code != 0 || notes.String() != want || out.String() != "hello: Completed in 3s, 2 tasks succeeded\n" {
		t.Errorf("exit code %d, %q, %q", code, notes.String(), out.String())
	}
}

// TestQueuesAreConfiguredFromAFile: config print shows the tree that config apply has sent.
func TestQueuesAreConfiguredFromAFile(t *testing.T) {
	address, _ := serve(t)
	if stdout, stderr, code := plimsollAt(
		t.Context(), address, "config", "apply", "../../examples/queues.yaml",
	); code != 0 {
		t.Fatal(stdout, stderr)
	}
	server, _, _ := plimsollAt(t.Context(), address, "config", "print")
	file, _, code := plimsollAt(t.Context(), address, "config", "print", "../../examples/queues.yaml")
	if d := cmp.Diff(file, server); d != "" || code != 0 || !strings.Contains(file, "vcore") {
		t.Errorf("-file +server:\n%s", d)
	}
}

// TestEventsAreFollowedUntilTheInterrupt: the interrupt is not an error.
func TestEventsAreFollowedUntilTheInterrupt(t *testing.T) {
	address, _ := serve(t)
	ctx, interrupt := context.WithCancel(t.Context())
	var notes bytes.Buffer
	code := execute(ctx, process{
		args: []string{"--server", address, "events", "-f", "-n", "3", "-o", "json"}, stdin: strings.NewReader(""),
		stdout: &trigger{on: `"id":4`, do: interrupt}, stderr: &notes, now: func() time.Time { return testNow },
	})
	if code != 0 || notes.String() != "" {
		t.Errorf("exit code %d, %s", code, notes.String())
	}
}

// TestACallThatTheServerEndsIsNotAnInterrupt: users are told that the server has ended their call.
func TestACallThatTheServerEndsIsNotAnInterrupt(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(499)
		// a failure shows in the command's output
		_, _ = w.Write([]byte(`{"code":"canceled","message":"the caller went away"}`))
	}))
	defer server.Close()
	_, stderr, code := plimsollAt(t.Context(), server.URL, "job", "get", "wordcount")
	if want := "plimsoll: the server ended the call, as one does that is being stopped; jobs go on: try again\n"; code != 1 || stderr != want {
		t.Errorf("exit code %d, stderr %q; want 1, %q", code, stderr, want)
	}
}

// TestAmountsInAFileOfFlagsMayBeNumbers: capacity has text values on the command line, and may have
// numbers in a file.
func TestAmountsInAFileOfFlagsMayBeNumbers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "flags.yaml")
	if err := os.WriteFile(path, []byte("capacity: {cpu: 2, memory: 1Gi, nvidia.com/gpu: 1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var root commands
	parser, err := newParser(&root, process{stdout: io.Discard, stderr: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse([]string{"dev", "--config", path}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(
		map[string]string{"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"}, root.Dev.Capacity,
	); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestTimesForPeople(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "just now", 500 * time.Millisecond: "just now", 1500 * time.Millisecond: "1.5s ago",
		3 * time.Second:  "3s ago",
		42 * time.Second: "42s ago", 2 * time.Minute: "2m ago", 125 * time.Second: "2m5s ago",
		42 * time.Minute: "42m ago",
		30 * time.Hour:   "30h ago", 72 * time.Hour: "3d ago",
	} {
		if got := ago(testNow, before(d)); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
	if got := ago(testNow, 0); got != "" {
		t.Errorf("never: %q", got)
	}
}

// TestEveryHelpShowsAnExample walks all commands, the hidden ones too.
func TestEveryHelpShowsAnExample(t *testing.T) {
	var root commands
	parser, err := newParser(&root, process{stdout: os.Stdout, stderr: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	var walk func(node *kong.Node, path []string)
	walk = func(node *kong.Node, path []string) {
		for _, child := range node.Children {
			walk(child, append(path[:len(path):len(path)], child.Name))
		}
		n++
		stdout, stderr, code := plimsollAt(t.Context(), "127.0.0.1:1", append(path, "--help")...)
		command := strings.Join(append([]string{"plimsoll"}, path...), " ")
		usage, _, _ := strings.Cut(stdout, "\n")
		if code != 0 || stderr != "" || !strings.HasPrefix(usage+" ", "Usage: "+command+" ") {
			t.Errorf("%s --help: exit code %d, %s%s", command, code, stdout, stderr)
		}
		if !strings.Contains(stdout, "Example") || !strings.Contains(stdout, "\n    plimsoll ") {
			t.Errorf("%s --help shows no example:\n%s", command, stdout)
		}
	}
	walk(parser.Model.Node, nil)
	if n < 25 {
		t.Errorf("only %d commands were looked at", n)
	}
}

// trigger calls do when the written text contains on.
type trigger struct {
	on string
	do func()
}

func (w *trigger) Write(data []byte) (int, error) {
	if strings.Contains(string(data), w.on) {
		w.do()
	}
	return len(data), nil
}

// TestAnInterruptKillsTheJobOfRun: run kills its job, waits for the end of the job, and returns the
// exit code of an interrupt.
func TestAnInterruptKillsTheJobOfRun(t *testing.T) {
	address, g := serve(t)
	ctx, interrupt := context.WithCancel(t.Context())
	out := &trigger{on: "second line", do: interrupt}
	var notes bytes.Buffer
	code := execute(ctx, process{
		args:   []string{"--server", address, "run", "--id", "nap", "--", "sleep", "60"},
		stdin:  strings.NewReader(""),
		stdout: out, stderr: &notes, now: func() time.Time { return testNow },
	})
	if code != exitInterrupted || !strings.Contains(notes.String(), "interrupted; killing nap") {
		t.Errorf("exit code %d, %s", code, notes.String())
	}
	job, err := g.job("nap")
	if err != nil || !job.Status.Killed || job.Status.State != plimsoll.JobFailed {
		t.Errorf("%+v, %v", job, err)
	}
}
