package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The state of a killed job is Failed, and its result in every list is killed.
func TestKilledIsAResultOfItsOwnInLists(t *testing.T) {
	address, g := serve(t)
	g.mu.Lock()
	for i := range g.mu.jobs {
		if s := &g.mu.jobs[i].Status; s.ID == "flaky" {
			s.Killed, s.Reason = true, "enough"
		}
	}
	g.mu.Unlock()
	for args, want := range map[string]string{
		"job list":                               "flaky Failed killed root.batch",
		"job list --result killed":               "flaky Failed killed root.batch",
		"job get flaky":                          "state: Failed result: killed reason: killed: enough",
		"job list --result killed -o json":       `"killed": true, "result": "killed"`,
		"job list --result succeeded,killed":     "wordcount Completed succeeded root.batch",
		"task list --state finished":             "flaky.map.1 Finished failed 3 n1 1",
		"task list --state finished -o yaml":     "result: failed reason: failed",
		"job list --state Failed --result kiled": `--result: "kiled" is not a result of a job; did you mean "killed"?`,
	} {
		stdout, stderr, _ := plimsollAt(t.Context(), address, strings.Fields(args)...)
		if got := strings.Join(strings.Fields(stdout+stderr), " "); !strings.Contains(got, want) {
			t.Errorf("%s: %s\nwant %s", args, got, want)
		}
	}
	stdout, _, _ := plimsollAt(t.Context(), address, "job", "list", "--result", "failed")
	if strings.Contains(stdout, "flaky") || strings.Contains(stdout, "wordcount") {
		t.Errorf("as failed are listed\n%s", stdout)
	}
}

// The error for a typo in a filter suggests the nearest name. An object that does not exist is no
// fault of the command line.
func TestAFilterWithATypoIsAnError(t *testing.T) {
	address, _ := serve(t)
	const noObject = "plimsoll: --object: there is no job, task, node or queue "
	const noEvent = ", and no event is about one; did you mean "
	for args, want := range map[string]string{
		"job list --state runnign":        `plimsoll: --state: "runnign" is not a state; did you mean "Running"?`,
		"task list --state Runnin":        `plimsoll: --state: "Runnin" is not a state; did you mean "Running"?`,
		"task list --state pending,nope":  `plimsoll: --state: "nope" is not a state; possible are Pending, Bound, `,
		"events --object wordcuont":       noObject + `"wordcuont"` + noEvent + `"wordcount"?`,
		"events --object n7":              noObject + `"n7"` + noEvent + `"n1"?`,
		"policy list --kind NodeQoS":      `plimsoll: --kind must be one of "all","NodeQOS",`,
		"job logs flaky --stream stdoutt": `plimsoll: --stream must be one of "stdout","stderr","both" but got "stdoutt"`,
	} {
		_, stderr, code := plimsollAt(t.Context(), address, strings.Fields(args)...)
		wantCode := exitUsage
		if strings.HasPrefix(want, noObject) {
			wantCode = exitFailed
		}
		if code != wantCode || !strings.HasPrefix(stderr, want) {
			t.Errorf("%s: exit code %d, %s\nwant %d, %s", args, code, stderr, wantCode, want)
		}
	}
}

// The error for an id that is taken names the flags that help.
func TestAnIDThatIsTakenNamesTheFlagsThatHelp(t *testing.T) {
	address, _ := serve(t)
	for args, flags := range map[string][]string{
		"submit testdata/job.yaml --id flaky": {"--id", "--unique"},
		"run --id flaky -- true":              {"--id"},
	} {
		_, stderr, code := plimsollAt(t.Context(), address, strings.Fields(args)...)
		for _, flag := range flags {
			if code != exitFailed || !strings.Contains(stderr, `"flaky" `) || !strings.Contains(stderr, flag+" ") {
				t.Errorf("%s: exit code %d, %s lacks %s", args, code, stderr, flag)
			}
		}
	}
}

// Several servers are tried in turn, and all are named when none can be reached.
func TestServersOfTheCommandLineAreTriedInTurn(t *testing.T) {
	address, _ := serve(t)
	none := "unix:" + filepath.Join(t.TempDir(), "none")
	stdout, stderr, code := plimsollAt(t.Context(), none+","+address, "job", "kill", "waiting")
	if code != 0 || stdout != "waiting: Failing\n" {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
	_, stderr, code = plimsollAt(t.Context(), none+","+none+"2", "--retry-for", "0s", "job", "list")
	want := "plimsoll: cannot reach a server at " + none + " or " + none + "2 ("
	if code != exitFailed || !strings.HasPrefix(stderr, want) {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

// At a terminal a wrong id of a job gets the nearest one. Scripts get the error alone.
func TestAWrongIDOfAJobGetsTheNearestOneAtATerminal(t *testing.T) {
	address, _ := serve(t)
	for args, near := range map[string]string{
		"job get wordcuont": "wordcount", "job kill flakey": "flaky", "job scale wordcuont 3": "wordcount",
		"explain wordcuont.map.1": "wordcount", "job logs wordcuont.map.1": "wordcount",
		"job get nothing-like-it": "", "job kill wordcuont flakey": "", "explain wordcount.map.99": "",
		"node show wordcuont": "",
	} {
		for _, live := range []bool{false, true} {
			var out, notes bytes.Buffer
			code := execute(t.Context(), process{
				args: append([]string{"--server", address}, strings.Fields(args)...), stdin: strings.NewReader(""),
				stdout: &out, stderr: &notes, live: live, now: func() time.Time { return testNow },
			})
			want := ""
			if live && near != "" {
				want = "; did you mean job \"" + near + "\"?\n"
			}
			got := notes.String()
			suggests := strings.Contains(got, "did you mean job")
			if code != exitFailed || suggests != (want != "") || !strings.HasSuffix(got, want) {
				t.Errorf("%s, terminal %t: exit code %d, %s", args, live, code, got)
			}
		}
	}
}
