package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// command runs a command against a gateway, in this process.
func command(t *testing.T, address string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, notes bytes.Buffer
	code = execute(t.Context(), process{
		args: append([]string{"--server", address}, args...), stdin: strings.NewReader(""),
		stdout: &out, stderr: &notes, now: func() time.Time { return testNow },
	})
	return out.String(), notes.String(), code
}

// addTasks adds a job with tasks that have ended.
func addTasks(g *fakeGateway, job string, tasks int, result plimsoll.TaskResult) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range tasks {
		g.mu.tasks = append(g.mu.tasks, plimsoll.Task{
			ID: plimsoll.TaskID(job, "map", int32(i)), Job: job, Group: "map", Index: int32(i), Attempt: 1, Node: "n1",
			State: plimsoll.TaskFinished, Result: result,
		})
	}
}

// addUnbound adds tasks of a killed job that were never bound. The server has nothing of them.
func addUnbound(g *fakeGateway, job string, tasks int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.unread == nil {
		g.mu.unread = map[string]error{}
	}
	for i := range tasks {
		id := plimsoll.TaskID(job, "reduce", int32(i))
		g.mu.tasks = append(g.mu.tasks, plimsoll.Task{
			ID: id, Job: job, Group: "reduce", Index: int32(i), State: plimsoll.TaskFinished,
			Result: plimsoll.ResultKilled,
		})
		g.mu.unread[id] = plimsoll.Errorf(plimsoll.CodeNotFound, "task %s ended without being started", id)
	}
}

// gone are the errors of logs that are gone: dropped by the node, or with it.
func gone(task string, withNode bool) error {
	e := &plimsoll.Error{Code: plimsoll.CodeNotFound, Msg: "this node has no logs of " + task}
	if withNode {
		e.Field = "node"
	}
	return e
}

func TestLogsThatAreGoneTakeOneLine(t *testing.T) {
	address, g := serve(t)
	addTasks(g, "large", 1200, plimsoll.ResultSucceeded)
	g.mu.unread = map[string]error{
		"large.map.3": plimsoll.Errorf(plimsoll.CodeDenied, "not yours"),
		"large.map.9": plimsoll.Errorf(plimsoll.CodeDenied, "not yours"),
	}
	for i := range 1200 {
		if id := plimsoll.TaskID("large", "map", int32(i)); i%400 != 0 && g.mu.unread[id] == nil {
			g.mu.unread[id] = gone(id, i < 10)
		}
	}
	stdout, stderr, code := command(t, address, "job", "logs", "large", "--stream", "stdout")
	if code != 0 || strings.Count(stdout, "large.map.400 | ") != 2 || strings.Count(stdout, "\n") != 6 {
		t.Errorf("exit code %d, stdout %s", code, stdout)
	}
	want := "plimsoll: logs of 1,195 of 1,200 tasks are gone: 1,188 dropped by their nodes to make room or for " +
		"their age, 7 on nodes that were removed\n" +
		"plimsoll: logs of 2 of 1,200 tasks cannot be read, the first of them large.map.3: not yours\n"
	if stderr != want {
		t.Errorf("stderr is\n%swant\n%s", stderr, want)
	}
}

func TestWhichLogsArePrinted(t *testing.T) {
	address, g := serve(t)
	g.mu.tasks[1].Attempt = 2 // flaky.map.1 has failed twice
	const one, two = "this is %[1]s\nsecond line\n", "%[2]s | this is %[1]s\n%[2]s | second line\n"
	log := func(format, task, prefix string) string {
		if format == one {
			return fmt.Sprintf(one, task)
		}
		return fmt.Sprintf(format, task, prefix)
	}
	for _, c := range []struct {
		args string
		want string
	}{
		{"flaky.map.0", log(one, "flaky.map.0", "")},
		{"flaky --failed", log(two, "flaky.map.1", "flaky.map.1") + log(two, "flaky.map.2", "flaky.map.2")},
		{"flaky.map.2 --failed", log(one, "flaky.map.2", "")},
		{"flaky.map.0 --failed", ""},
		{"wordcount --failed", ""},
		{
			"flaky.map.1 --all-attempts", log(two, "flaky.map.1", "flaky.map.1/1") +
				log(two, "flaky.map.1", "flaky.map.1/2"),
		},
		{"flaky.map.0 --all-attempts", log(one, "flaky.map.0", "")},
		{
			"flaky --failed --all-attempts", log(two, "flaky.map.1", "flaky.map.1/1") +
				log(two, "flaky.map.1", "flaky.map.1/2") + log(two, "flaky.map.2", "flaky.map.2/1"),
		},
		{"wordcount", log(two, "wordcount.map.0", "wordcount.map.0") + log(two, "wordcount.map.1", "wordcount.map.1")},
	} {
		args := append([]string{"job", "logs", "--stream", "stdout"}, strings.Fields(c.args)...)
		stdout, stderr, code := command(t, address, args...)
		if diff := cmp.Diff(c.want, stdout); code != 0 || diff != "" {
			t.Errorf("%s: exit code %d, %s (-want +got):\n%s", c.args, code, stderr, diff)
		}
	}
	for args, want := range map[string]string{
		"flaky --failed --follow":                "--follow: ",
		"flaky --since=-1m":                      "--since: ",
		"flaky.map.1 --all-attempts --attempt 1": "--all-attempts: ",
	} {
		_, stderr, code := command(t, address, append([]string{"job", "logs"}, strings.Fields(args)...)...)
		if code != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %s", args, code, stderr)
		}
	}
}

// A line has the time of its beginning, also if it comes in pieces.
func TestTimesOfLines(t *testing.T) {
	var b bytes.Buffer
	w := taskWriter{timed: true, to: &output{w: &b}}
	for i, text := range []string{"one\ntw", "o\nthree", "\n"} {
		w.at = time.Date(2026, 1, 2, 3, 4, i, 999, time.UTC).UnixNano()
		w.write([]byte(text))
	}
	w.at = 0
	w.write([]byte("four"))
	w.flush()
	want := "2026-01-02T03:04:00Z one\n2026-01-02T03:04:00Z two\n2026-01-02T03:04:01Z three\n- four\n"
	if b.String() != want {
		t.Errorf("written was\n%swant\n%s", &b, want)
	}
}

// files are the parts of the outputs of a task.
func files(pairs ...string) []*pb.FetchOutputsResponse {
	parts := []*pb.FetchOutputsResponse{{Part: &pb.FetchOutputsResponse_Summary{Summary: &pb.OutputSummary{}}}}
	for i := 0; i < len(pairs); i += 2 {
		parts = append(
			parts,
			outputFile(pairs[i], int64(len(pairs[i+1]))),
			&pb.FetchOutputsResponse{Part: &pb.FetchOutputsResponse_Data{Data: []byte(pairs[i+1])}},
		)
	}
	return parts
}

func outputFile(path string, size int64) *pb.FetchOutputsResponse {
	return &pb.FetchOutputsResponse{Part: &pb.FetchOutputsResponse_File{File: &pb.OutputFile{Path: path, Size: size}}}
}

// filesBelow lists the files below a directory with their text.
func filesBelow(t *testing.T, dir string) string {
	t.Helper()
	text := ""
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		name, relErr := filepath.Rel(dir, path)
		if text += name + "=" + string(data) + " "; err == nil {
			err = relErr
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(text)
}

func TestFetch(t *testing.T) {
	address, g := serve(t)
	refused := files("log", "l")
	refused[0].GetSummary().Refused = 3
	refused[0].GetSummary().Refusals = []*pb.OutputRefusal{{Path: "x", Reason: "is a symbolic link"}}
	g.mu.outputs = map[string][]*pb.FetchOutputsResponse{
		"flaky.map.0": files("a", "1", "out/b", "22"), "flaky.map.1": refused,
		"flaky.map.2": append(files("whole", "w"), outputFile("cut", 5), files("", "1234")[2]),
	}
	g.mu.unread = map[string]error{
		"wordcount.map.0": gone("wordcount.map.0", false), "wordcount.map.1": gone("wordcount.map.1", true),
	}
	addUnbound(g, "unbound", 2)
	for _, c := range []struct {
		args, want, says string
		code             int
	}{
		{"flaky.map.0", "flaky.map.0/a=1 flaky.map.0/out/b=22", "fetched 2 files of 3 bytes to ", 0},
		{"flaky --task flaky.map.0", "flaky.map.0/a=1 flaky.map.0/out/b=22", "fetched 2 files", 0},
		{
			"flaky --task flaky.map.1", "flaky.map.1/log=l",
			"entries left out: 3, the first of them flaky.map.1/x is a symbolic link", 0,
		},
		{"flaky --failed", "flaky.map.1/log=l flaky.map.2/whole=w", "entries left out: 4", 1},
		{
			"flaky.map.2", "flaky.map.2/whole=w",
			"entries left out: 1, the first of them flaky.map.2/cut changed", 1,
		},
		{
			"wordcount", "", "outputs of 2 of 2 tasks are gone: 1 dropped by their nodes to make room or for their " +
				"age, 1 on nodes that were removed", 1,
		},
		{"waiting", "", "tasks that have not ended, for a later fetch: 2", 0},
		{"unbound.reduce.1", "", "fetched no file\nplimsoll: 1 task never started: unbound.reduce.1 (killed)\n", 0},
		{"wordcount --task flaky.map.0", "", "--task: ", 2},
		{"nothing", "", `there is no job "nothing"`, 1},
	} {
		dir := filepath.Join(t.TempDir(), "made", "here")
		args := append([]string{"job", "fetch", "-o", dir}, strings.Fields(c.args)...)
		_, stderr, code := command(t, address, args...)
		got := ""
		if _, err := os.Stat(dir); err == nil {
			got = filesBelow(t, dir)
		}
		if code != c.code || got != c.want || !strings.Contains(stderr, c.says) {
			t.Errorf("%s: exit code %d, files %q, %s", c.args, code, got, stderr)
		}
	}
}

// A task that was killed before it was bound has no logs and no files. That is no loss.
func TestATaskThatWasNeverBoundHasLostNothing(t *testing.T) {
	address, g := serve(t)
	addTasks(g, "killed", 2, plimsoll.ResultKilled)
	addUnbound(g, "killed", 2)
	g.mu.outputs = map[string][]*pb.FetchOutputsResponse{"killed.map.0": files("a", "1"), "killed.map.1": files()}
	dir := t.TempDir()
	const unstarted = "plimsoll: 2 tasks never started: killed.reduce.0 (killed), killed.reduce.1 (killed)\n"
	for args, want := range map[string]string{
		"job fetch killed -o " + dir: "fetched 1 file of 1 byte to " + dir +
			"\nplimsoll: 1 task wrote no outputs: killed.map.1\n" + unstarted,
		"job logs killed --stream stdout":                unstarted,
		"job logs killed --stream stdout --all-attempts": unstarted,
	} {
		_, stderr, code := command(t, address, strings.Fields(args)...)
		if code != 0 || stderr != want {
			t.Errorf("%s: exit code %d, %q, want %q", args, code, stderr, want)
		}
	}
}

func TestFetchOverwritesOnlyByForce(t *testing.T) {
	address, g := serve(t)
	g.mu.outputs = map[string][]*pb.FetchOutputsResponse{"flaky.map.0": files("a", "new", "b", "new")}
	dir := t.TempDir()
	putFile := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	putFile("flaky.map.0/b", "mine")
	putFile("flaky.map.0.partial", "left by a fetch that was killed")
	_, stderr, code := command(t, address, "job", "fetch", "flaky.map.0", "-o", dir)
	if got := filesBelow(t, dir); code != 1 || got != "flaky.map.0/a=new flaky.map.0/b=mine" ||
		!strings.Contains(stderr, "--force") {
		t.Errorf("exit code %d, files %s, %s", code, got, stderr)
	}
	if _, stderr, code = command(t, address, "job", "fetch", "flaky.map.0", "-o", dir, "--force"); code != 0 {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	if got := filesBelow(t, dir); got != "flaky.map.0/a=new flaky.map.0/b=new" {
		t.Errorf("files %s", got)
	}
}

// The paths come from a node, on which an agent may be faulty or hostile. Links may lie in the
// directory.
func TestFetchWritesOnlyBelowItsDirectory(t *testing.T) {
	outside := t.TempDir()
	for _, path := range []string{
		"../x", "/" + outside + "/x", "a/../../x", "..", ".", "", "a//b", "a/", "\x1b[31m", "two\nlines",
		"link/x", "up/x",
	} {
		address, g := serve(t)
		g.mu.outputs = map[string][]*pb.FetchOutputsResponse{"flaky.map.0": files(path, "text")}
		top := t.TempDir()
		dir := filepath.Join(top, "dir")
		if err := os.MkdirAll(filepath.Join(dir, "flaky.map.0"), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, target := range map[string]string{"link": outside, "up": "../.."} {
			if err := os.Symlink(target, filepath.Join(dir, "flaky.map.0", name)); err != nil {
				t.Fatal(err)
			}
		}
		_, stderr, code := command(t, address, "job", "fetch", "flaky.map.0", "-o", dir, "--force")
		for _, place := range []string{outside, top} {
			if found := namesIn(t, place); strings.Trim(found, " ") != "" && found != "dir" {
				t.Errorf("%q: %s holds %s", path, place, found)
			}
		}
		if code != 1 || namesIn(t, dir) != "flaky.map.0" || strings.Contains(stderr, "\x1b") {
			t.Errorf("%q: exit code %d, %q, %s", path, code, stderr, namesIn(t, dir))
		}
	}
}

// A node that sends more than it announced does not fill the disk.
func TestFetchTakesNoMoreThanWasAnnounced(t *testing.T) {
	address, g := serve(t)
	g.mu.outputs = map[string][]*pb.FetchOutputsResponse{"flaky.map.0": append(files("a", "text"), files("", "more")[2])}
	dir := t.TempDir()
	if _, stderr, code := command(t, address, "job", "fetch", "flaky.map.0", "-o", dir); code != 1 ||
		!strings.Contains(stderr, "more bytes than it announced") || filesBelow(t, dir) != "" {
		t.Errorf("exit code %d, files %s, %s", code, filesBelow(t, dir), stderr)
	}
}

func namesIn(t *testing.T, dir string) string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}
