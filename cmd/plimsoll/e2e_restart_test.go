package main

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestCommandsGoOnWhenTheirServerIsKilledAndStartedAgain: a command that waits or follows goes on,
// and one that is given meanwhile finds the server and its token.
func TestCommandsGoOnWhenTheirServerIsKilledAndStartedAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	dev := func(listen string) *daemon {
		d := start(
			t, "dev", "--data", s.data(), "--listen", listen, "--node", "n1", "--capacity", "cpu=4;memory=4Gi",
		)
		s.address = d.says(readyLine)[1]
		s.nodeReady("n1")
		return d
	}
	d := dev("127.77.0.1:0") // an address of the loopback that no other test takes meanwhile
	gate := s.path("gate")
	s.submit(
		"long", 1, "seq 3; seq 1001 1003 >&2; until [ -e "+gate+" ]; do sleep 0.02; done; seq 4 6; echo bye >&2", "",
	)
	eventually(t, "wait for the output", func() error {
		stdout, stderr, _ := s.cli("job", "logs", "long")
		if stdout != "1\n2\n3\n" || stderr != "1001\n1002\n1003\n" {
			return errors.New(stdout + stderr)
		}
		return nil
	})

	type result struct {
		stdout, stderr sharedText
		code           int
		ended          chan struct{}
	}
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	begin := func(args string, flags ...string) *result {
		r := &result{ended: make(chan struct{})}
		go func() {
			defer close(r.ended)
			r.code = execute(ctx, process{
				args:  slices.Concat([]string{"--server", s.address}, flags, strings.Fields(args)),
				stdin: strings.NewReader(""), stdout: &r.stdout, stderr: &r.stderr, now: time.Now,
			})
		}()
		return r
	}
	says := func(r *result, text string) {
		t.Helper()
		eventually(t, "wait for "+text, func() error {
			if all := r.stdout.String() + r.stderr.String(); !strings.Contains(all, text) {
				return errors.New(all)
			}
			return nil
		})
	}
	wait, job, task := begin("job wait long"), begin("job logs -f long"), begin("job logs -f long.main.0")
	events := begin("events -f --object long")
	says(wait, "Running")
	says(job, "1003\n")
	says(task, "1003\n")
	says(events, "job long runs")
	d.kill()
	tryOn := []string{"--retry-for", patience.String()}
	list, get := begin("job list -o name", tryOn...), begin("job get long -o json", tryOn...)
	dev(strings.TrimPrefix(s.address, "http://"))
	s.write("gate", "")
	says(events, "job long completed")
	for _, r := range []*result{wait, job, task, list, get} {
		<-r.ended
	}
	interrupt() // following of events has no end of its own
	<-events.ended
	for text, r := range map[string]*result{"long: Completed": wait, "long\n": list, `"id": "long"`: get} {
		if !strings.Contains(r.stdout.String(), text) {
			t.Errorf("%q is missing in %s", text, &r.stdout)
		}
	}
	const numbers = "1\n2\n3\n4\n5\n6\n"
	if job.stdout.String() != numbers || task.stdout.String() != numbers {
		t.Errorf("followed are\n%s and\n%s", &job.stdout, &task.stdout)
	}
	for _, r := range []*result{wait, job, task, events, list, get} {
		text := r.stderr.String()
		before, _, lost := strings.Cut(text, "plimsoll: the connection is lost (")
		if followed := r != list && r != get; lost != followed {
			t.Errorf("it says %q", text)
		}
		if r.code != 0 || strings.Contains(before, "plimsoll: ") {
			t.Errorf("exit code %d, %s\n%s", r.code, text, &r.stdout)
		}
	}
}

// sharedText holds the text of a command, which may still write.
type sharedText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *sharedText) Write(data []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(data)
}

func (s *sharedText) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}
