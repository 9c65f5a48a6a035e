package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll"
)

// standing returns the state that a refused command must not change.
func (s *site) standing() string {
	s.t.Helper()
	var all strings.Builder
	for _, args := range []string{
		"job list -o json", "task list -o json", "node list -o json", "queue list -o json", "config print",
		"events -n 0 -o json",
	} {
		stdout, stderr, code := s.cli(strings.Fields(args)...)
		if code != 0 {
			s.t.Fatalf("%s: exit code %d, %s", args, code, stderr)
		}
		fmt.Fprintf(&all, "$ %s\n%s", args, withoutNews(s.t, args, stdout))
	}
	return all.String()
}

// withoutNews leaves out of lists the facts that may change beside a refusal. A node tells the use
// outside of its tasks, which is that of the whole machine. Refused jobs are kept as Rejected.
func withoutNews(t testing.TB, args, stdout string) string {
	t.Helper()
	var rows []map[string]any
	if json.Unmarshal([]byte(stdout), &rows) != nil {
		return stdout // no list
	}
	refused := map[any]bool{}
	for _, row := range rows {
		refused[row["object"]] = refused[row["object"]] || row["detail"] == plimsoll.AppReject.String()
	}
	rows = slices.DeleteFunc(rows, func(row map[string]any) bool {
		return row["detail"] == plimsoll.NodeOccupied.String() || row["state"] == plimsoll.JobRejected.String() ||
			row["object"] != nil && refused[row["object"]]
	})
	for _, row := range rows {
		if _, ok := row["occupied"]; ok {
			delete(row, "occupied")
			delete(row, "occupiedAt")
			delete(row, "revision") // it is that of the last change of any field
		}
	}
	kept, err := json.MarshalIndent(rows, "", " ")
	if err != nil {
		t.Fatalf("%s: %v", args, err)
	}
	return string(kept) + "\n"
}

// TestBadInput: a wrong input gets one clear error that names the field and the remedy, and changes
// nothing but the list of refused jobs. The exit code is 2, or 1 if the input is wrong only in the
// present state of the cluster.
func TestBadInput(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.dev()
	s.works("there")
	job := func(more string) string {
		return "job: bad\ngroups:\n  - name: main\n    command: [\"true\"]\n    " + more + "\n"
	}
	good := job("count: 1")
	tests := []struct{ name, file, args, want string }{
		{"malformed", "job: [a\n", "submit FILE", `FILE:1: cannot be read as YAML: .*`},
		{"no YAML at all", "\x00\x01\x02", "submit FILE", `FILE.*`},
		{"empty", "", "submit FILE", `FILE: is empty; a job file has job: and groups:.*`},
		{"unknown field", job(
			"comand: [ls]",
		), "submit FILE", `FILE:5: groups\[0\]\.comand: unknown field; did you mean "command"\?`},
		{"negative quantity", job(
			"resources: {memory: -1}",
		), "submit FILE", `FILE:5: groups\[0\]\.resources\.memory: quantity "-1" is negative; give zero or more`},
		{"absurd quantity", job("resources: {cpu: 1e30}"), "submit FILE", `FILE:5: groups\[0\]\.resources\.cpu: quantity "1e30" is absurdly large; the largest possible is .*`},
		{"unparsable quantity", job("resources: {cpu: lots}"), "submit FILE", `FILE:5: groups\[0\]\.resources\.cpu: quantity "lots" cannot be read; write for example 500m or 2`},
		{"negative count", job("count: -1"), "submit FILE", `FILE:5: groups\[0\]\.count: .*-1.*`},
		{"no such queue", "queue: root.nowhere\n" + good, "submit FILE", `queue: .*root\.nowhere.*`},
		{"not a leaf", "queue: root\n" + good, "submit FILE", `queue: .*root.*`},
		{"duplicate id", good, "submit FILE --id there", `.*"?there"? .*`},
		{
			"a queue file", "partitions: []\n", "submit FILE",
			`FILE: is a queue file, not a job file; use plimsoll config apply`,
		},
		{
			"a job file as queues", good, "config apply FILE",
			`FILE: is a job file, not a queue file; use plimsoll submit`,
		},
		{"negative max of a queue", "partitions: [{name: default, queues: [{name: root, queues: [{name: a, resources: {max: {vcore: -1}}}]}]}]", "config apply FILE", `FILE:1: root\.a\.resources\.max\.vcore: quantity "-1" is negative; give zero or more`},
		{"no such file", "", "submit nowhere.yaml", `read nowhere\.yaml: no such file or directory`},
		{"no such job", "", "job get nothing", `.*"nothing".*`},
		{"kill of no job", "", "job kill nothing", `.*"nothing".*`},
		{"scale of no job", "", "job scale nothing 3", `.*"nothing".*`},
		{"drain of no node", "", "node drain nothing", `.*"nothing".*`},
		{"absurd flag", "", "run --cpu 1e30 -- true", `--cpu: quantity "1e30" is absurdly large; the largest possible is .*`},
		{"run in no queue", "", "run --queue root.nowhere -- true", `queue: .*root\.nowhere.*`},
	}
	// found lists the inputs that are wrong only in the present state of the cluster.
	found := []string{"duplicate id", "no such job", "kill of no job", "scale of no job", "drain of no node"}
	before := s.standing()
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			file := s.write("bad.yaml", test.file)
			stdout, stderr, code := run(
				t,
				append(
					[]string{"--server", s.address}, strings.Fields(strings.ReplaceAll(test.args, "FILE", file))...,
				)...,
			)
			wantCode := exitUsage
			if slices.Contains(found, test.name) {
				wantCode = exitFailed
			}
			want := "^plimsoll: " + strings.ReplaceAll(test.want, "FILE", regexp.QuoteMeta(file)) + "\n$"
			if code != wantCode || stdout != "" || !regexp.MustCompile(want).MatchString(stderr) {
				t.Errorf("exit code %d, %s%s, want %d, %s", code, stdout, stderr, wantCode, want)
			}
			t.Log(stderr)
		})
	}
	if diff := cmp.Diff(before, s.standing()); diff != "" {
		t.Errorf("something was changed (-before +after):\n%s", diff)
	}
}

// TestCommandThatDoesNotExist: the task fails with a reason, run ends with the exit code of a
// shell, and the node goes on.
func TestCommandThatDoesNotExist(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.dev()
	supervisor := s.supervisor(filepath.Join(s.data(), "agent"))
	notExecutable := s.write("text", "no program")
	for id, c := range map[string]struct {
		command, flags, want string
		code                 int
		reported             bool // the task has the exit code
	}{
		"nowhere": {
			"plimsoll-no-such-command", "", `the command "plimsoll-no-such-command" was not found in PATH`, 127, true,
		},
		"text":    {notExecutable, "", "is not executable; chmod +x makes it so", 126, true},
		"workdir": {"true", "--workdir /nowhere", "/nowhere", exitFailed, false},
		"user":    {"true", "--user plimsoll-nobody", "plimsoll-nobody", exitFailed, false},
	} {
		args := append(append([]string{"run", "--id", id}, strings.Fields(c.flags)...), "--", c.command)
		_, stderr, code := s.cli(args...)
		if code != c.code || !strings.Contains(stderr, "never started: ") || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: exit code %d, %s", id, code, stderr)
		}
		_, tasks := s.job(id)
		neverRan := tasks[0].State == "Finished" && tasks[0].Reason == "never started"
		if !neverRan || (tasks[0].ExitCode != nil) != c.reported {
			t.Errorf("%+v", tasks)
		}
	}
	s.works("after")
	if now := s.supervisor(filepath.Join(s.data(), "agent")); now != supervisor {
		t.Errorf("the supervisor was %d and is %d", supervisor, now)
	}
}

// tree lists the files of a directory with their content, for a comparison.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		found[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// refuses wants a role to end at once with an error, and to leave the directory unchanged.
func (s *site) refuses(t *testing.T, dir, want string, args ...string) {
	t.Helper()
	before := map[string]string{}
	if dir != "" {
		before = tree(t, dir)
	}
	d := start(t, args...)
	code := d.exit()
	line := regexp.MustCompile("^plimsoll: " + want + "\n$")
	if stderr := d.stderr(); code != exitFailed && code != exitUsage || !line.MatchString(stderr) {
		t.Errorf("%v: exit code %d, %swant %s", args, code, stderr, want)
	}
	t.Log(d.stderr())
	if dir != "" {
		if diff := cmp.Diff(before, tree(t, dir)); diff != "" {
			t.Errorf("%v changed the directory:\n%s", args, diff)
		}
	}
}

// TestPlacesInUse: a directory or a port that another process has is refused, and that process goes
// on.
func TestPlacesInUse(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d, address := s.devOnPort()
	port := strings.TrimPrefix(address, "http://")
	pid := d.cmd.Process.Pid
	inUse := fmt.Sprintf(
		`.*%s.* is in use by .*process %d.*; stop it, or choose another directory`, regexp.QuoteMeta(s.data()), pid,
	)
	s.refuses(t, "", inUse, "dev", "--data", s.data(), "--listen", "127.0.0.1:0")
	s.refuses(
		t, "", `.*`+regexp.QuoteMeta(s.data())+`.*; stop it.*`, "agent", "--data", filepath.Join(s.data(), "agent"),
		"--gateways", port, "--node", "n1",
	)
	portInUse := regexp.QuoteMeta(port) + " is in use by another process; stop it, or listen on another address"
	s.refuses(t, "", portInUse, "dev", "--data", s.path("other"), "--listen", port)
	s.refuses(t, "", portInUse, "coordinator", "--data", s.path("other", "store"), "--listen", port)
	s.refuses(t, "", portInUse, "gateway", "--listen", port)
	if _, err := os.Stat(s.path("other")); err == nil {
		t.Error("a directory was made although the port was in use")
	}
	s.works("still")
}

// TestPlacesThatCannotBeWritten: the error names the directory and the remedy.
func TestPlacesThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	file := s.write("file", "in the way")
	for _, dir := range []string{file, filepath.Join(file, "below"), "/proc/plimsoll"} {
		want := ".*" + regexp.QuoteMeta(dir) + ".* choose (another|a) .*"
		s.refuses(t, s.dir, want, "dev", "--data", dir, "--listen", "127.0.0.1:0")
		s.refuses(t, s.dir, want, "coordinator", "--data", dir, "--listen", "127.0.0.1:0")
		s.refuses(t, s.dir, want, "agent", "--data", dir, "--gateways", "127.0.0.1:1", "--node", "n1")
	}
}

// TestDamagedStore: a store that was cut, changed or written by a newer version is refused. The
// error names the file and the part that can be saved, and no file is changed.
func TestDamagedStore(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.dev()
	s.works("one")
	s.works("two")
	d.kill()
	logs, err := filepath.Glob(filepath.Join(s.data(), "store", "*.log"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("%v, %v", logs, err)
	}
	log := filepath.Base(logs[0])
	manifests, err := filepath.Glob(filepath.Join(s.data(), "store", "MANIFEST-*"))
	if err != nil || len(manifests) != 1 {
		t.Fatalf("%v, %v", manifests, err)
	}
	manifest := filepath.Base(manifests[0])
	const saves = `.*copy the directory aside.*`
	for name, c := range map[string]struct {
		file, want string
		damage     func(data []byte) []byte
	}{
		"cut in the middle": {
			log, log + saves + `goes on from revision \d+.*`, func(b []byte) []byte { return b[:len(b)/2] },
		},
		"cut by a byte":       {log, log + saves, func(b []byte) []byte { return b[:len(b)-1] }},
		"empty":               {log, log + saves, func([]byte) []byte { return nil }},
		"a bit":               {log, log + saves, func(b []byte) []byte { b[len(b)/2] ^= 4; return b }},
		"zeros":               {log, log + saves, func(b []byte) []byte { clear(b[len(b)/3 : len(b)/2]); return b }},
		"a bit of the list":   {manifest, manifest + saves, func(b []byte) []byte { b[len(b)/2] ^= 4; return b }},
		"the list cut":        {manifest, manifest + saves, func(b []byte) []byte { return b[:len(b)/2] }},
		"a bit of the record": {"WITNESS", "WITNESS" + saves, func(b []byte) []byte { b[30] ^= 4; return b }},
		"a newer version":     {"WITNESS", `written by a newer version of plimsoll: its format is version 9 .*; use that newer version.*`, newerWitness},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := s.path(strings.ReplaceAll(name, " ", "-"))
			if err := os.CopyFS(filepath.Join(dir, "store"), os.DirFS(filepath.Join(s.data(), "store"))); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "store", c.file)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, c.damage(data), 0o600); err != nil {
				t.Fatal(err)
			}
			s.refuses(t, dir, "open store: .*"+c.want, "dev", "--data", dir, "--listen", "127.0.0.1:0")
		})
	}
}

// newerWitness changes the store's record of its own format to format 9.
func newerWitness(b []byte) []byte {
	binary.BigEndian.PutUint32(b[8:], 9)
	binary.BigEndian.PutUint32(b[12:], crc32.Checksum(b[:12], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// TestBadRESTParameters: the error for a bad parameter names it. A count that is larger than the
// number of objects returns all of them.
func TestBadRESTParameters(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	_, address := s.devOnPort()
	get := func(query string) (code int, body string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/ws/v1/events/batch"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", userToken(t, s.data()).Header())
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }() // it was only read
		data, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(data)
	}
	for query, want := range map[string]string{
		"?count=-1":                      `count: "-1" is not a whole number; give one of 1 or more`,
		"?count=0":                       "count: is 0; give a whole number of 1 or more, or leave it out",
		"?start=abc":                     `start: "abc" is not a whole number; give one of 0 or more`,
		"?start=-1":                      `start: "-1" is not a whole number; give one of 0 or more`,
		"?count=18446744073709551616":    `count: "18446744073709551616" is too large`,
		"?count=99999999999999999999999": "is too large; give a whole number from 1 to 18446744073709551615",
		"?start=%zz":                     "query: cannot be taken apart; write for example ?count=100&start=0",
	} {
		code, body := get(query)
		var refusal struct{ Message string }
		if err := json.Unmarshal(
			[]byte(body), &refusal,
		); err != nil || code != http.StatusBadRequest || !strings.Contains(refusal.Message, want) {
			t.Errorf("%s: %d, %s (%v), want %s", query, code, body, err, want)
		}
	}
	type page struct {
		LowestID, HighestID uint64
		EventRecords        []any
	}
	for query, all := range map[string]bool{
		"": true, "?count=5000": true, "?count=18446744073709551615": true, "?start=18446744073709551615": false,
	} {
		code, body := get(query)
		var p page
		if err := json.Unmarshal([]byte(body), &p); err != nil || code != http.StatusOK || p.HighestID == 0 {
			t.Errorf("%s: %d, %s (%v)", query, code, body, err)
		}
		if want := p.HighestID - p.LowestID + 1; all && uint64(len(p.EventRecords)) != want ||
			!all && p.EventRecords != nil {
			t.Errorf("%s: %d events of %d", query, len(p.EventRecords), want)
		}
	}
}
