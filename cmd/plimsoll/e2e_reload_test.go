package main

import (
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// leafPaths returns the paths of the queues that take jobs.
func (s *site) leafPaths() (paths []string) {
	s.t.Helper()
	queues, err := s.client().Queues(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	for i := range queues {
		if queues[i].Leaf {
			paths = append(paths, queues[i].Path)
		}
	}
	return paths
}

// At SIGHUP the queue file is read again and applied as a whole. One with a mistake leaves the tree
// as it is: a log line and an event say why.
func TestTheQueueFileIsReadAgainAtSIGHUP(t *testing.T) {
	t.Parallel()
	const one = "partitions: [{name: default, queues: [{name: root, queues: [{name: one}]}]}]\n"
	const note = `a note on the queue file.*partitions\[0\].preemption: is not stated`
	s := newSite(t)
	file := s.write("queues.yaml", one)
	d := s.dev("--queues", file)
	d.says(note)
	if got := s.leafPaths(); !slices.Equal(got, []string{"root.one"}) {
		t.Fatalf("the leaves are %v", got)
	}
	reload := func(text, says string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := d.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		d.says(says)
	}
	const applied = note + "(?s:.*)" + note + "(?s:.*)the queue file was read again and applied"
	reload(strings.ReplaceAll(one, "one", "two"), applied)
	if got := s.leafPaths(); !slices.Equal(got, []string{"root.two"}) {
		t.Errorf("the leaves are %v", got)
	}
	reload(strings.ReplaceAll(one, "queues: [{name: one}]", "nonsense: 1"), "queue file was refused.*nonsense")
	if got := s.leafPaths(); !slices.Equal(got, []string{"root.two"}) {
		t.Errorf("the leaves are %v", got)
	}
	stdout, stderr, code := s.cli("events", "--type", "queue")
	if code != 0 || !strings.Contains(stdout, "a configuration of the queues was refused: ") ||
		!strings.Contains(stdout, "nonsense") {
		t.Errorf("events: exit code %d, %s%s", code, stdout, stderr)
	}
	d.stop()
}

// A coordinator without a queue file has nothing to read again at SIGHUP, and goes on.
func TestACoordinatorWithoutAQueueFileGoesOnAtSIGHUP(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := start(t, "coordinator", "--data", s.path("store"), "--listen", "unix:"+s.path("c.sock"))
	c.says("leading")
	for _, says := range []string{"no queue file to read again", "(?s:no queue file.*no queue file)"} {
		if err := c.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		c.says(says)
	}
	c.stop()
}
